// Moments of activations and their gradient. An image is (D, P): D coordinates (channels) at P positions, contiguous.
// Tiles of an image are copied to scratch that stays in the first-level cache, where the products are made.
#pragma once
#include "line.h"

namespace remix {
namespace REMIX_ISA {

constexpr int kLeft = 2, kRight = 4;  // a block of products: 8 sums in registers from 6 loads

template <class T>
using Vec = typename Line<T>::vec;

// Positions of a tile: 16 KB for up to 64 coordinates of float, always a multiple of two vectors.
template <class T>
REMIX_INLINE int64_t tile_positions(int64_t dim) {
  constexpr int64_t step = 2 * Line<T>::width;
  const int64_t fits = (16384 / int64_t(sizeof(T))) / dim / step * step;
  return fits > 64 ? fits : 64;
}

REMIX_INLINE int64_t padded_coordinates(int64_t dim) { return (dim + kRight - 1) / kRight * kRight; }

// An affine map of every coordinate on its own, as BatchNorm is once it is frozen: normal = scale x + offset.
template <class T>
struct Normalise {
  const T *scale, *offset;
  T* normal;  // null: none is wanted
};

// tile (padded dim, width) = x - origin at `count` positions from x on; zeros beyond them and below the last coordinate.
template <class T>
REMIX_INLINE void copy_tile(const T* x, int64_t dim, int64_t positions, int64_t count, int64_t width, const T* origin,
                            const Normalise<T>& map, T* tile) {
  for (int64_t d = 0; d < dim; ++d) {
    const T *row = x + d * positions, centre = origin ? origin[d] : T(0);
    T* to = tile + d * width;
    for (int64_t p = 0; p < count; ++p) to[p] = row[p] - centre;
    for (int64_t p = count; p < width; ++p) to[p] = T(0);
    if (map.normal) {
      const T scale = map.scale[d], offset = map.offset[d];
      T* normal = map.normal + d * positions;
      for (int64_t p = 0; p < count; ++p) normal[p] = row[p] * scale + offset;
    }
  }
  const int64_t padded = padded_coordinates(dim);
  for (int64_t k = dim * width; k < padded * width; ++k) tile[k] = T(0);
}

// Adds the sums of a tile to first (padded dim) vectors, and its squares to second (padded dim) vectors.
template <class T>
REMIX_INLINE void add_squares(const T* tile, int64_t padded, int64_t width, Vec<T>* first, Vec<T>* second) {
  constexpr int W = Line<T>::width;
  for (int64_t d = 0; d < padded; ++d) {
    const Vec<T>* row = reinterpret_cast<const Vec<T>*>(tile + d * width);
    Vec<T> sum[2] = {first[d], Vec<T>{}}, squares[2] = {second[d], Vec<T>{}};
    for (int64_t v = 0; v < width / W; v += 2)
      for (int half = 0; half < 2; ++half) {
        sum[half] += row[v + half];
        squares[half] += row[v + half] * row[v + half];
      }
    first[d] = sum[0] + sum[1];
    second[d] = squares[0] + squares[1];
  }
}

template <class T>
REMIX_INLINE void add_sums(const T* tile, int64_t padded, int64_t width, Vec<T>* first) {
  constexpr int W = Line<T>::width;
  for (int64_t d = 0; d < padded; ++d) {
    const Vec<T>* row = reinterpret_cast<const Vec<T>*>(tile + d * width);
    Vec<T> sum[2] = {first[d], Vec<T>{}};
    for (int64_t v = 0; v < width / W; v += 2) {
      sum[0] += row[v];
      sum[1] += row[v + 1];
    }
    first[d] = sum[0] + sum[1];
  }
}

// Adds the products of all pairs of rows of a tile to second (padded, padded): blocks on and above the diagonal. While
// it computes it asks for the next tile: rows of a kilobyte are too short for the processor to see them coming.
template <class T>
REMIX_INLINE void add_products(const T* tile, int64_t padded, int64_t width, Vec<T>* second, const T* next,
                               T* next_normal, int64_t positions) {
  const int64_t steps = width / Line<T>::width;
  for (int64_t i = 0; i < padded; i += kLeft) {
    if (next)
      for (int a = 0; a < kLeft; ++a)
        for (int64_t p = 0; p < width; p += lanes<T>()) {
          __builtin_prefetch(next + (i + a) * positions + p);
          if (next_normal) __builtin_prefetch(next_normal + (i + a) * positions + p, 1);
        }
    for (int64_t j = i / kRight * kRight; j < padded; j += kRight) {
      const Vec<T>*left[kLeft], *right[kRight];
      for (int a = 0; a < kLeft; ++a) left[a] = reinterpret_cast<const Vec<T>*>(tile + (i + a) * width);
      for (int b = 0; b < kRight; ++b) right[b] = reinterpret_cast<const Vec<T>*>(tile + (j + b) * width);
      Vec<T> sum[kLeft][kRight];
      for (int a = 0; a < kLeft; ++a)
        for (int b = 0; b < kRight; ++b) sum[a][b] = second[(i + a) * padded + j + b];
      for (int64_t v = 0; v < steps; ++v)
        for (int b = 0; b < kRight; ++b)
          for (int a = 0; a < kLeft; ++a) sum[a][b] += left[a][v] * right[b][v];
      for (int a = 0; a < kLeft; ++a)
        for (int b = 0; b < kRight; ++b) second[(i + a) * padded + j + b] = sum[a][b];
    }
  }
}

// Bytes of scratch that one worker of the two functions below needs.
template <class T>
int64_t moment_scratch(int64_t dim, bool full) {
  const int64_t padded = padded_coordinates(dim), sums = padded * (full ? padded + 1 : 2);
  return int64_t(sizeof(T)) * padded * tile_positions<T>(dim) + int64_t(sizeof(Vec<T>)) * sums;
}

// Sums over all positions of `images` images, about origin (D): of y into out (D), of y y' behind it (D, D), or of
// y * y (D). normal, if not null, becomes scale x + offset in the same pass.
template <class T>
void moment_sums(const T* x, int64_t images, int64_t dim, int64_t positions, const T* origin, bool full, const T* scale,
                 const T* offset, T* normal, void* scratch, double* out) {
  constexpr int W = Line<T>::width;
  const int64_t padded = padded_coordinates(dim), most = tile_positions<T>(dim);
  const int64_t seconds = full ? padded * padded : padded;
  T* tile = static_cast<T*>(scratch);
  Vec<T>* first = reinterpret_cast<Vec<T>*>(tile + padded * most);
  Vec<T>* second = first + padded;
  for (int64_t k = 0; k < padded + seconds; ++k) first[k] = Vec<T>{};
  for (int64_t n = 0; n < images; ++n)
    for (int64_t p = 0; p < positions; p += most) {
      const int64_t count = positions - p < most ? positions - p : most;
      const int64_t width = (count + 2 * W - 1) / (2 * W) * (2 * W);
      const int64_t at = n * dim * positions + p;
      const Normalise<T> map{scale, offset, normal ? normal + at : nullptr};
      copy_tile<T>(x + at, dim, positions, count, width, origin, map, tile);
      if (full) {
        const int64_t ahead = p + most < positions ? most : n + 1 < images ? dim * positions - p : 0;
        const T* next = ahead ? x + at + ahead : nullptr;
        T* next_normal = ahead && normal ? normal + at + ahead : nullptr;
        add_sums<T>(tile, padded, width, first);
        add_products<T>(tile, padded, width, second, next, next_normal, positions);
      } else {
        add_squares<T>(tile, padded, width, first, second);
      }
    }
  for (int64_t d = 0; d < dim; ++d) out[d] = double(sum_lanes<T>(first[d]));
  double* products = out + dim;
  if (!full) {
    for (int64_t d = 0; d < dim; ++d) products[d] = double(sum_lanes<T>(second[d]));
    return;
  }
  for (int64_t i = 0; i < dim; ++i)
    for (int64_t j = i; j < dim; ++j)
      products[i * dim + j] = products[j * dim + i] = double(sum_lanes<T>(second[i * padded + j]));
}

// out = scale given + two vectors, at `left` positions from `to` on; given may be null.
template <class T>
REMIX_INLINE void store_sum(Vec<T> low, Vec<T> high, const T* given, T scale, int64_t to, int64_t left, T* out) {
  constexpr int W = Line<T>::width;
  typedef T loose __attribute__((vector_size(REMIX_VECTOR_BYTES), may_alias, aligned(sizeof(T))));
  if (left >= 2 * W) {
    if (given) {
      low += scale * reinterpret_cast<const loose*>(given + to)[0];
      high += scale * reinterpret_cast<const loose*>(given + to)[1];
    }
    reinterpret_cast<loose*>(out + to)[0] = low;
    reinterpret_cast<loose*>(out + to)[1] = high;
    return;
  }
  const Vec<T> both[2] = {low, high};
  T lane[2 * W];
  __builtin_memcpy(lane, both, sizeof lane);
  for (int64_t p = 0; p < left; ++p) out[to + p] = given ? scale * given[to + p] + lane[p] : lane[p];
}

// out = scale given + slope x + shift at `count` positions, x in a tile (dim, width). While it computes it asks for the next
// tile, `ahead` numbers on: rows of a kilobyte are too short for the processor to see them coming (three times slower).
template <class T>
REMIX_INLINE void affine_tile(const T* tile, int64_t dim, int64_t positions, int64_t count, int64_t width,
                              const T* slope, const T* shift, const T* scale, const T* x, const T* given, T* out,
                              int64_t ahead) {
  constexpr int W = Line<T>::width;
  for (int64_t i = 0; i < dim; i += 4)
    for (int64_t v = 0; v < width; v += 2 * W) {
      const int64_t to = i * positions + v;
      if (ahead)
        for (int a = 0; a < 4; ++a) {
          const int64_t next = to + a * positions + ahead;
          __builtin_prefetch(x + next);
          if (given) __builtin_prefetch(given + next);
          __builtin_prefetch(out + next, 1);
        }
      Vec<T> sum[4][2];
      for (int a = 0; a < 4; ++a) sum[a][0] = sum[a][1] = Vec<T>{} + shift[i + a];
      for (int64_t k = 0; k < dim; ++k) {
        const Vec<T>* row = reinterpret_cast<const Vec<T>*>(tile + k * width + v);
        const Vec<T> low = row[0], high = row[1];
        for (int a = 0; a < 4; ++a) {
          const T factor = slope[(i + a) * dim + k];
          sum[a][0] += factor * low;
          sum[a][1] += factor * high;
        }
      }
      for (int a = 0; a < 4; ++a)  // no end that depends on data: the sums must stay in registers
        if (i + a < dim) {
          const T factor = scale ? scale[i + a] : T(1);
          store_sum<T>(sum[a][0], sum[a][1], given, factor, to + a * positions, count - v, out);
        }
    }
}

// out = scale given + slope x + shift at every position, with slope (padded D, D) and shift (padded D), or, not full,
// both (D); given may be null, and so may scale (D), for 1.
template <class T>
void add_affine(const T* x, const T* given, int64_t images, int64_t dim, int64_t positions, const T* slope,
                const T* shift, const T* scale, bool full, void* scratch, T* out) {
  constexpr int W = Line<T>::width;
  if (!full) {
    for (int64_t row = 0; row < images * dim; ++row) {
      const T a = slope[row % dim], b = shift[row % dim], factor = scale ? scale[row % dim] : T(1);
      const int64_t at = row * positions;
      if (given)
        for (int64_t p = 0; p < positions; ++p) out[at + p] = factor * given[at + p] + (a * x[at + p] + b);
      else
        for (int64_t p = 0; p < positions; ++p) out[at + p] = a * x[at + p] + b;
    }
    return;
  }
  const int64_t most = tile_positions<T>(dim);
  T* tile = static_cast<T*>(scratch);
  for (int64_t n = 0; n < images; ++n)
    for (int64_t p = 0; p < positions; p += most) {
      const int64_t count = positions - p < most ? positions - p : most;
      const int64_t width = (count + 2 * W - 1) / (2 * W) * (2 * W), at = n * dim * positions + p;
      const int64_t ahead = p + most < positions ? most : n + 1 < images ? dim * positions - p : 0;
      copy_tile<T>(x + at, dim, positions, count, width, nullptr, Normalise<T>{}, tile);
      affine_tile<T>(tile, dim, positions, count, width, slope, shift, scale, x + at, given ? given + at : nullptr,
                     out + at, ahead);
    }
}

#define REMIX_MOMENT_INSTANCES(T)                                                                                     \
  template int64_t moment_scratch<T>(int64_t, bool);                                                                  \
  template void moment_sums<T>(const T*, int64_t, int64_t, int64_t, const T*, bool, const T*, const T*, T*, void*,    \
                               double*);                                                                             \
  template void add_affine<T>(const T*, const T*, int64_t, int64_t, int64_t, const T*, const T*, const T*, bool,      \
                              void*, T*);
REMIX_MOMENT_INSTANCES(float)
REMIX_MOMENT_INSTANCES(double)

}  // namespace REMIX_ISA
}  // namespace remix
