// The hot loops of fitting, per instruction set. Feature-major data: row i of `u` holds the N samples of unit i, padded
// with zeros to `stride` elements (a multiple of a cache line), aligned to a cache line.
#pragma once
#include "chain.h"

namespace remix {
namespace REMIX_ISA {
namespace chain {

// tiles[t][k] = lanes t of unit order[k], for positions first..last.
template <class T>
void fit_gather(const T* u, int64_t stride, int64_t size, const int64_t* order, int64_t first, int64_t last, T* tiles) {
  constexpr int L = lanes<T>();
  const int64_t count = stride / L;
  for (int64_t k = first; k < last; ++k) {
    const T* row = u + order[k] * stride;
    if (k + 8 < last)
      for (int64_t t = 0; t < count; t += 4) __builtin_prefetch(u + order[k + 8] * stride + t * L);
    for (int64_t t = 0; t < count; ++t) Line<T>::load(row + t * L).store(tiles + (t * size + k) * L);
  }
}

template <class T>
void fit_forward(const T* tile, int64_t size, const void* forward, T* states, double* quadratic) {
  chain_forward<T>(tile, size, static_cast<const Forward<T>*>(forward), states, quadratic);
}

template <class T>
void fit_backward(const T* const* tiles, int64_t count, int64_t size, const void* forward, const void* backward,
                  const T* const* states, T* scratch, T* const sums[3]) {
  chain_backward<T, false>(tiles, count, size, static_cast<const Forward<T>*>(forward),
                           static_cast<const Backward<T>*>(backward), states, nullptr, scratch, sums, nullptr);
}

template <class T>
double fit_steps(const ChainFactor* factor, void* forward, void* backward) {
  const double logdet = factorise(*factor);
  chain_steps<T>(*factor, static_cast<Forward<T>*>(forward), static_cast<Backward<T>*>(backward));
  return logdet;
}

// out[e] = scale <u_i, u_j> of the edges first..last.
template <class T>
void fit_edges(const T* u, int64_t stride, const int32_t* from, const int32_t* to, int64_t first, int64_t last,
               double scale, float* out) {
  constexpr int L = lanes<T>();
  for (int64_t e = first; e < last; ++e) {
    const T *a = u + from[e] * stride, *b = u + to[e] * stride;
    Line<T> sum = Line<T>::zero();
    for (int64_t n = 0; n < stride; n += L) sum = sum + Line<T>::load(a + n) * Line<T>::load(b + n);
    out[e] = float(scale * double(sum.sum()));
  }
}

// Columns of the `count` largest magnitudes of one row, into best (count), in no particular order.
template <class T>
void fit_largest(const T* row, int64_t size, int64_t count, int64_t* best) {
  constexpr int64_t block = 64;
  T kept[64];  // count <= 64
  int64_t used = 0, weakest = 0;
  T bar = -1;
  for (int64_t start = 0; start < size; start += block) {
    const int64_t stop = start + block < size ? start + block : size;
    T most = 0;
    for (int64_t j = start; j < stop; ++j) {
      const T value = row[j] < 0 ? -row[j] : row[j];
      most = value > most ? value : most;
    }
    if (most <= bar) continue;  // nearly always
    for (int64_t j = start; j < stop; ++j) {
      const T value = row[j] < 0 ? -row[j] : row[j];
      if (value <= bar) continue;
      const int64_t slot = used < count ? used++ : weakest;
      kept[slot] = value;
      best[slot] = j;
      if (used < count) continue;
      weakest = 0;
      for (int64_t s = 1; s < count; ++s) weakest = kept[s] < kept[weakest] ? s : weakest;
      bar = kept[weakest];
    }
  }
}

// Frobenius data term, one direction. x = weight * v along the sorted chain, `rows` samples in `Count` vectors:
// carried L_k = phi_k (L_{k-1} + x_{k-1}) and out[k] += sum v_k L_k. Downwards the same with R. Upwards `square` receives
// sum v_k^2. Rows of v are gathered by `order`. The number of vectors is fixed at compile time so that what is carried
// stays in registers: half the time of a loop over a count.
template <class T, int Count, bool Down>
void frobenius_scan(const T* v, int64_t stride, int64_t size, const int64_t* order, const T* weight, const T* phi,
                    int64_t rows, T* out, T* square) {
  using V = typename Line<T>::vec;
  typedef T Loose __attribute__((vector_size(REMIX_VECTOR_BYTES), aligned(sizeof(T))));
  typedef int32_t Bits __attribute__((vector_size(REMIX_VECTOR_BYTES)));
  constexpr int width = Line<T>::width;
  constexpr int64_t batch = 64, ahead = 14;  // positions whose sums are taken together; rows fetched beforehand
  const int64_t tail = rows - (Count - 1) * width, row_bytes = rows * int64_t(sizeof(T));
  V keep = {};  // all bits set in the lanes of the last vector that are rows
  __builtin_memset(&keep, 0xff, tail * sizeof(T));
  V carried[Count] = {};
  V dot[batch], energy[batch];
  T sum[batch];
  for (int64_t begin = 0; begin < size; begin += batch) {
    const int64_t count = size - begin < batch ? size - begin : batch;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t step = begin + j, k = Down ? size - 1 - step : step;
      if (step + ahead < size) {
        const char* next = reinterpret_cast<const char*>(v + order[Down ? k - ahead : k + ahead] * stride);
        for (int64_t byte = 0; byte < row_bytes; byte += kLine) __builtin_prefetch(next + byte);
        __builtin_prefetch(next + row_bytes - 1);
      }
      const T* const row = v + order[k] * stride;
      const T w = weight[k];
      const T fade = phi[Down ? k : (k + 1 < size ? k + 1 : k)];  // towards the next position of the walk
      V last = {};
      if (order[k] + 1 < size)
        last = V(Bits(V(*reinterpret_cast<const Loose*>(row + (Count - 1) * width))) & Bits(keep));
      else  // nothing is read beyond the end of v
        __builtin_memcpy(&last, row + (Count - 1) * width, tail * sizeof(T));
      V product = {}, squared = {};
#pragma GCC unroll 8
      for (int p = 0; p < Count; ++p) {
        const V x = p + 1 < Count ? V(*reinterpret_cast<const Loose*>(row + p * width)) : last;
        product += x * carried[p];
        if (!Down) squared += x * x;
        carried[p] = fade * (carried[p] + w * x);
      }
      dot[j] = product;
      if (!Down) energy[j] = squared;
    }
    sum_folded<T>(dot, count, sum);
    for (int64_t j = 0; j < count; ++j) out[Down ? size - 1 - begin - j : begin + j] += sum[j];
    if (!Down) {
      sum_folded<T>(energy, count, sum);
      for (int64_t j = 0; j < count; ++j) square[begin + j] += sum[j];
    }
  }
}

// The scan with as many vectors as `rows` samples need, at most Count.
template <class T, int Count>
void frobenius_scan_of(const T* v, int64_t stride, int64_t size, const int64_t* order, const T* weight, const T* phi,
                       int64_t rows, bool down, T* out, T* square) {
  if constexpr (Count > 1) {
    if (rows <= (Count - 1) * Line<T>::width)
      return frobenius_scan_of<T, Count - 1>(v, stride, size, order, weight, phi, rows, down, out, square);
  }
  (down ? frobenius_scan<T, Count, true> : frobenius_scan<T, Count, false>)(v, stride, size, order, weight, phi, rows,
                                                                            out, square);
}

template <class T>
void fit_frobenius(const T* v, int64_t stride, int64_t size, const int64_t* order, const T* weight, const T* phi,
                   int64_t rows, bool down, T* out, T* square) {
  constexpr int64_t most = 8 * Line<T>::width;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t now = rows - first < most ? rows - first : most;
    frobenius_scan_of<T, 8>(v + first, stride, size, order, weight, phi, now, down, out, square);
  }
}

#define REMIX_FIT_INSTANCES(T)                                                                                        \
  template void fit_gather<T>(const T*, int64_t, int64_t, const int64_t*, int64_t, int64_t, T*);                      \
  template void fit_forward<T>(const T*, int64_t, const void*, T*, double*);                                          \
  template void fit_backward<T>(const T* const*, int64_t, int64_t, const void*, const void*, const T* const*, T*,     \
                                T* const*);                                                                           \
  template double fit_steps<T>(const ChainFactor*, void*, void*);                                                     \
  template void fit_edges<T>(const T*, int64_t, const int32_t*, const int32_t*, int64_t, int64_t, double, float*);    \
  template void fit_frobenius<T>(const T*, int64_t, int64_t, const int64_t*, const T*, const T*, int64_t, bool, T*, T*); \
  template void fit_largest<T>(const T*, int64_t, int64_t, int64_t*);
REMIX_FIT_INSTANCES(float)
REMIX_FIT_INSTANCES(double)

}  // namespace chain
}  // namespace REMIX_ISA
}  // namespace remix
