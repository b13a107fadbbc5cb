// A cache line of values in registers, one value per row of a tile. Included once per instruction set.
#pragma once
#include "isa.h"
#if REMIX_VECTOR_BYTES >= 32
#include <immintrin.h>
#endif

namespace remix {
namespace REMIX_ISA {

template <class T>
constexpr int lanes() {
  return 64 / sizeof(T);
}

// A struct of native vectors: compilers keep it in registers, which they do not do for a vector type wider than the
// machine's.
template <class T>
struct Line {
  typedef T vec __attribute__((vector_size(REMIX_VECTOR_BYTES), may_alias));
  static constexpr int parts = 64 / REMIX_VECTOR_BYTES;
  static constexpr int width = REMIX_VECTOR_BYTES / sizeof(T);
  vec part[parts];

  static REMIX_INLINE Line zero() {
    Line line;
    for (int i = 0; i < parts; ++i) line.part[i] = vec{};
    return line;
  }
  static REMIX_INLINE Line load(const T* from) {
    Line line;
    for (int i = 0; i < parts; ++i) line.part[i] = reinterpret_cast<const vec*>(from)[i];
    return line;
  }
  REMIX_INLINE void store(T* to) const {
    for (int i = 0; i < parts; ++i) reinterpret_cast<vec*>(to)[i] = part[i];
  }
  friend REMIX_INLINE Line operator+(Line a, const Line& b) {
    for (int i = 0; i < parts; ++i) a.part[i] += b.part[i];
    return a;
  }
  friend REMIX_INLINE Line operator-(Line a, const Line& b) {
    for (int i = 0; i < parts; ++i) a.part[i] -= b.part[i];
    return a;
  }
  friend REMIX_INLINE Line operator*(Line a, const Line& b) {
    for (int i = 0; i < parts; ++i) a.part[i] *= b.part[i];
    return a;
  }
  friend REMIX_INLINE Line operator*(T scalar, Line a) {
    for (int i = 0; i < parts; ++i) a.part[i] *= scalar;
    return a;
  }
  // The sum of the parts: one register, whose `width` lanes still have to be added (sum_folded).
  REMIX_INLINE vec folded() const {
    vec all = part[0];
    for (int i = 1; i < parts; ++i) all += part[i];
    return all;
  }
  REMIX_INLINE T sum() const;
};

// Of the lanes of a folded line, always in the same order.
template <class T>
REMIX_INLINE T sum_lanes(typename Line<T>::vec folded) {
  T lane[Line<T>::width];
  __builtin_memcpy(lane, &folded, sizeof lane);
  for (int half = Line<T>::width / 2; half; half /= 2)
    for (int n = 0; n < half; ++n) lane[n] += lane[n + half];
  return lane[0];
}
template <class T>
REMIX_INLINE T Line<T>::sum() const {
  return sum_lanes<T>(folded());
}

// out[k] = sum of the lanes of the k-th of `count` folded lines, always in the same order.
template <class T>
REMIX_INLINE void sum_folded(const typename Line<T>::vec* from, int64_t count, T* out) {
  for (int64_t k = 0; k < count; ++k) out[k] = sum_lanes<T>(from[k]);
}

#if REMIX_VECTOR_BYTES == 32
// Eight at a time, through horizontal additions; `from` is padded to a multiple of eight and so is what is written.
template <>
REMIX_INLINE void sum_folded<float>(const Line<float>::vec* from, int64_t count, float* out) {
  for (int64_t k = 0; k < count; k += 8) {
    __m256 v[8], sums;
    for (int j = 0; j < 8; ++j) v[j] = from[k + j];
    for (int j = 0; j < 8; j += 2) v[j] = _mm256_hadd_ps(v[j], v[j + 1]);
    const __m256 low = _mm256_hadd_ps(v[0], v[2]), high = _mm256_hadd_ps(v[4], v[6]);
    sums = _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
    _mm256_storeu_ps(out + k, sums);
  }
}
#endif

}  // namespace REMIX_ISA
}  // namespace remix
