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

// Frobenius data term, one direction. x = weight * v along the sorted chain, `rows` samples from column `column` on:
// carried L_k = phi_k (L_{k-1} + x_{k-1}) and out[k] = sum v_k L_k. Downwards the same with R. `square` (may be null)
// receives sum v_k^2. Rows of v are gathered by `order`; at most 128 samples.
template <class T, bool Down, bool Square>
REMIX_INLINE void frobenius_scan(const T* v, int64_t stride, int64_t size, const int64_t* order, const T* weight,
                                 const T* phi, int64_t rows, T* out, T* square) {
  using V = typename Line<T>::vec;
  typedef T Loose __attribute__((vector_size(REMIX_VECTOR_BYTES), aligned(sizeof(T))));
  typedef int32_t Bits __attribute__((vector_size(REMIX_VECTOR_BYTES)));
  constexpr int width = Line<T>::width;
  constexpr int most = 128 / width;
  V carried[most] = {};
  const int64_t whole = rows / width, rest = rows % width;
  V keep = {};  // all bits set in the lanes of the last, partial vector that are rows
  __builtin_memset(&keep, 0xff, rest * sizeof(T));
  const T* const end = v + (size - 1) * stride + rows;
  constexpr int64_t batch = 64, ahead = 14;  // positions whose sums are taken together; rows fetched beforehand
  V dot[batch], energy[batch];
  T sum[batch];
  for (int64_t begin = 0; begin < size; begin += batch) {
    const int64_t count = size - begin < batch ? size - begin : batch;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t step = begin + j, k = Down ? size - 1 - step : step;
      if (step + ahead < size) {
        const char* next = reinterpret_cast<const char*>(v + order[Down ? k - ahead : k + ahead] * stride);
        for (int64_t byte = 0; byte < rows * int64_t(sizeof(T)); byte += kLine) __builtin_prefetch(next + byte);
        __builtin_prefetch(next + rows * sizeof(T) - 1);
      }
      const T* row = v + order[k] * stride;
      const T w = weight[k];
      const T fade = phi[Down ? k : (k + 1 < size ? k + 1 : k)];  // towards the next position of the walk
      V product = {}, squared = {};
      for (int64_t p = 0; p < whole; ++p) {
        const V x = *reinterpret_cast<const Loose*>(row + p * width);
        product += x * carried[p];
        if (Square) squared += x * x;
        carried[p] = fade * (carried[p] + w * x);
      }
      if (rest) {
        V x = {};
        if (row + (whole + 1) * width <= end) {
          x = *reinterpret_cast<const Loose*>(row + whole * width);
          x = V(Bits(x) & Bits(keep));
        } else {
          __builtin_memcpy(&x, row + whole * width, rest * sizeof(T));
        }
        product += x * carried[whole];
        if (Square) squared += x * x;
        carried[whole] = fade * (carried[whole] + w * x);
      }
      dot[j] = product;
      if (Square) energy[j] = squared;
    }
    sum_folded<T>(dot, count, sum);
    for (int64_t j = 0; j < count; ++j) out[Down ? size - 1 - begin - j : begin + j] += sum[j];
    if (Square) {
      sum_folded<T>(energy, count, sum);
      for (int64_t j = 0; j < count; ++j) square[Down ? size - 1 - begin - j : begin + j] += sum[j];
    }
  }
}

template <class T>
void fit_frobenius(const T* v, int64_t stride, int64_t size, const int64_t* order, const T* weight, const T* phi,
                   int64_t rows, bool down, T* out, T* square) {
  constexpr int64_t most = 128;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t now = rows - first < most ? rows - first : most;
    if (down && square)
      frobenius_scan<T, true, true>(v + first, stride, size, order, weight, phi, now, out, square);
    else if (down)
      frobenius_scan<T, true, false>(v + first, stride, size, order, weight, phi, now, out, square);
    else if (square)
      frobenius_scan<T, false, true>(v + first, stride, size, order, weight, phi, now, out, square);
    else
      frobenius_scan<T, false, false>(v + first, stride, size, order, weight, phi, now, out, square);
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
