// The factorisation: a stable sort, one pass up, one pass down. Double precision, and in the recursions only sums and
// products of non-negative numbers. Also the coefficients of the four sweeps (filters.py).
#include <cmath>
#include <cstring>

#include "isa.h"
#include "memory.h"

namespace {

// Order-preserving map from doubles to unsigned integers; -0 and 0 are the same coordinate.
uint64_t sort_key(double value) {
  value += 0.0;
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

struct Entry {
  uint64_t key;
  int64_t index;
};

// Least-significant-digit radix sort: stable, six passes of 11 bits, passes in which all digits agree are left out.
void sort_coordinates(const double* coord, int64_t size, Entry* entries, Entry* spare, int64_t* order) {
  constexpr int bits = 11, passes = 6, buckets = 1 << bits;
  static thread_local int64_t count[passes][buckets];
  std::memset(count, 0, sizeof count);
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t key = sort_key(coord[i]);
    entries[i] = {key, i};
    for (int pass = 0; pass < passes; ++pass) ++count[pass][key >> (bits * pass) & (buckets - 1)];
  }
  for (int pass = 0; pass < passes; ++pass) {
    int64_t* place = count[pass];
    const int shift = bits * pass;
    if (size == 0 || place[entries[0].key >> shift & (buckets - 1)] == size) continue;
    int64_t sum = 0;
    for (int b = 0; b < buckets; ++b) {
      const int64_t here = place[b];
      place[b] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < size; ++i) spare[place[entries[i].key >> shift & (buckets - 1)]++] = entries[i];
    Entry* swap = entries;
    entries = spare, spare = swap;
  }
  for (int64_t i = 0; i < size; ++i) order[i] = entries[i].index;
}

// Rounds the decays of a chain so that the errors of neighbours cancel: products of many decays near 1, which carry slow
// correlations over a million positions, keep their accuracy although each factor has only 24 bits.
struct DecayRounding {
  double sum = 0;
  int64_t units = 0;
  float operator()(double decay) {
    if (!(decay > .5)) return static_cast<float>(decay);
    constexpr double unit = 1. / (1 << 24);
    sum += 1 - decay;
    const int64_t all = std::llround(sum / unit), own = all - units;
    units = all;
    return static_cast<float>(1 - static_cast<double>(own) * unit);
  }
};
struct NoRounding {
  double operator()(double decay) const { return decay; }
};

template <class T, class Rounding>
void fill_table(int64_t size, const double* vectors, T* table) {
  remix::advise_huge(table, 16 * size * sizeof(T));
  const double *weight = vectors + size, *phi = vectors + 2 * size, *S = vectors + 5 * size, *G = vectors + 6 * size,
               *gam = vectors + 7 * size;
  Rounding rounded[4];
  for (int64_t k = 0; k < size; ++k) {
    const double root = std::sqrt(S[k]), inverse = 1 / root, next = k + 1 < size ? phi[k + 1] : 0, w = weight[k];
    const double rows[4][4] = {{inverse, -inverse * w, next * gam[k], next * G[k]},
                               {inverse, -G[k], phi[k] * gam[k], phi[k] * w * inverse},
                               {root, w, next, next * G[k] * root},
                               {root, root * G[k], phi[k], phi[k] * w}};
    for (int which = 0; which < 4; ++which) {
      T* to = table + (which * size + k) * 4;
      for (int i = 0; i < 4; ++i) to[i] = static_cast<T>(rows[which][i]);
      to[2] = rounded[which](rows[which][2]);
    }
  }
}

}  // namespace

// order (size): stable argsort of coord. Returns 0, or 1 when there is no memory to sort.
REMIX_API int remix_argsort(int64_t size, const double* coord, int64_t* order) {
  remix::Scratch scratch(2 * size * sizeof(Entry));
  if (!scratch.data) return 1;
  Entry* entries = static_cast<Entry*>(scratch.data);
  sort_coordinates(coord, size, entries, entries + size, order);
  return 0;
}

// diag, weight, coord (size), in the order of the coordinates. Writes order and rank (size), and vectors (10, size) in
// sorted order: diag, weight, phi, P, C, S, G, gam, N, f. Returns 0, or 1 when there is no memory to sort.
REMIX_API int remix_factorise(int64_t size, const double* diag, const double* weight, const double* coord,
                              int64_t* order, int32_t* rank, double* vectors) {
  remix::Scratch scratch(2 * size * sizeof(Entry));
  if (!scratch.data) return 1;
  remix::advise_huge(vectors, 10 * size * sizeof(double));
  Entry* entries = static_cast<Entry*>(scratch.data);
  sort_coordinates(coord, size, entries, entries + size, order);
  double* row[10];
  for (int i = 0; i < 10; ++i) row[i] = vectors + i * size;
  double *D = row[0], *W = row[1], *phi = row[2], *P = row[3], *C = row[4], *S = row[5], *G = row[6], *gam = row[7],
         *N = row[8], *f = row[9];
  double p = 1, c = 0, before = 0;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t i = order[k];
    rank[i] = static_cast<int32_t>(k);
    const double d = diag[i], w = weight[i], w2 = w * w;
    D[k] = d, W[k] = w, phi[k] = 0;
    if (k) {
      const double gap = coord[i] - before, last = W[k - 1] * W[k - 1];
      phi[k] = std::exp(-gap);
      const double phi2 = phi[k] * phi[k];
      c = phi2 * (D[k - 1] * c + last * p) / S[k - 1];
      p = phi2 * gam[k - 1] * p - std::expm1(-2 * gap);
    }
    before = coord[i];
    const double s = d + w2 * p;
    P[k] = p, C[k] = c, S[k] = s, G[k] = w * p / s, gam[k] = d / s;
  }
  double carried = 0;
  for (int64_t k = size - 1; k >= 0; --k) {
    f[k] = carried;
    N[k] = gam[k] * gam[k] * carried + W[k] * W[k] / S[k];
    carried = phi[k] * phi[k] * N[k];
  }
  return 0;
}

// table (4, size, 4): coefficients of whiten, its transpose, unwhiten and its transpose.
REMIX_API void remix_table_float(int64_t size, const double* vectors, float* table) {
  fill_table<float, DecayRounding>(size, vectors, table);
}
REMIX_API void remix_table_double(int64_t size, const double* vectors, double* table) {
  fill_table<double, NoRounding>(size, vectors, table);
}
