// Gradients of the weighted negative log-likelihood in the rows and, summed over rows, in the parameters
// (docs/mathematics.md): the sweeps of chain.h on tiles of rows. Included once per instruction set.
#include "chain.h"

namespace remix {
namespace REMIX_ISA {

using chain::kChunk;
constexpr int64_t kWave = 8;  // tiles whose sums are held at a time
constexpr int kSums = 4;

// Values of scratch that gradient_rows needs, 64-byte aligned.
template <class T>
int64_t gradient_scratch(int64_t size, int64_t tiles, int64_t workers) {
  const int64_t chunks = (size + kChunk - 1) / kChunk, padded = (size + 15) / 16 * 16;
  return 10 * padded + (tiles < kWave ? tiles : kWave) * kSums * padded + workers * (size + chunks + 6 * kChunk + 2) * lanes<T>();
}

// From the sums over rows, in sorted order, to the gradients in loc, diag, weight and the gap before each position, in
// place; `total` is the sum of the row weights.
inline void finish_sums(const ChainFactor& c, double total, int64_t first, int64_t last, double* totals) {
  double *diag = totals, *weight = totals + c.size, *gap = totals + 2 * c.size, *loc = totals + 3 * c.size;
  for (int64_t k = first; k < last; ++k) {
    diag[k] = (total * (1 / c.S[k] + c.G[k] * c.G[k] * c.f[k]) - diag[k]) / 2;
    weight[k] = total * c.G[k] * (1 - c.P[k] * c.gam[k] * c.f[k]) - weight[k];
    gap[k] = k ? total * c.C[k] * c.N[k] + gap[k] : 0;
    loc[k] = -loc[k];
  }
}

// x: `rows` rows of `size`. Writes out (rows, size) = t_b g_b, unless null, and gradients (4, size) in diag, weight, coord
// and loc, in the order of the coordinates. totals: 4 * size values. Tiles are summed in double and in their order,
// whatever the threads do.
template <class T>
void gradient_rows(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                   const double* vectors, const T* row_weight, T* out, double* totals, double* gradients, T* scratch,
                   int workers) {
  constexpr int L = lanes<T>();
  const int64_t chunks = (size + kChunk - 1) / kChunk, padded = (size + 15) / 16 * 16, tiles = (rows + L - 1) / L;
  chain::Forward<T>* forward = reinterpret_cast<chain::Forward<T>*>(scratch);
  chain::Backward<T>* backward = reinterpret_cast<chain::Backward<T>*>(scratch + 4 * padded);
  T* sums = scratch + 10 * padded;
  T* own = sums + (tiles < kWave ? tiles : kWave) * kSums * padded;
  const int64_t own_size = (size + chunks + 6 * kChunk + 2) * L;
  const ChainFactor factor = chain_factor(vectors, size);
  chain::chain_steps<T>(factor, forward, backward);
  const bool stream = rows * size * static_cast<int64_t>(sizeof(T)) > (int64_t{8} << 20);
  constexpr int64_t block = 1 << 14;  // positions that one task adds up
  const int64_t blocks = (size + block - 1) / block;
  double total = 0;
  for (int64_t b = 0; b < rows; ++b) total += static_cast<double>(row_weight[b]);
  for (int64_t wave = 0; wave < tiles; wave += kWave) {
    const int64_t count = tiles - wave < kWave ? tiles - wave : kWave;
    parallel(count, workers, [&](int64_t task, int worker) {
      const int64_t begin = rows * (wave + task) / tiles, end = rows * (wave + task + 1) / tiles;
      const int height = static_cast<int>(end - begin);
      T* tile = own + worker * own_size;
      T* states = tile + size * L;
      T* weights = states + chunks * L;
      T* sum = sums + task * kSums * padded;
      T* const place[kSums] = {sum, sum + padded, sum + 2 * padded, sum + 3 * padded};
      for (int b = 0; b < L; ++b) weights[b] = b < height ? row_weight[begin + b] : T(0);
      load_tile(x + begin * stride, stride, height, loc, rank, size, tile);
      double quadratic[L];
      chain::chain_forward<T>(tile, size, forward, states, quadratic);
      const T* const tiles_of[1] = {tile};
      const T* const states_of[1] = {states};
      const T* const weights_of[1] = {weights};
      T* const solved[1] = {tile};
      chain::chain_backward<T, true>(tiles_of, 1, size, forward, backward, states_of, weights_of, weights + L, place,
                                     out ? solved : nullptr);
      if (out) store_tile<T>(tile, rank, size, nullptr, out + begin * size, size, height, stream);
    });
    parallel(blocks, workers, [&](int64_t task, int) {
      const int64_t first = task * block, last = first + block < size ? first + block : size;
      for (int which = 0; which < kSums; ++which)
        for (int64_t k = first; k < last; ++k) {
          double sum = wave ? totals[which * size + k] : 0;
          for (int64_t t = 0; t < count; ++t) sum += static_cast<double>(sums[(t * kSums + which) * padded + k]);
          totals[which * size + k] = sum;
        }
      if (wave + kWave >= tiles) finish_sums(factor, total, first, last, totals);
    });
  }
  const double* gap = totals + 2 * size;
  parallel(blocks, workers, [&](int64_t task, int) {
    const int64_t first = task * block, last = first + block < size ? first + block : size;
    for (int64_t i = first; i < last; ++i) {
      const int64_t k = rank[i];
      gradients[i] = totals[k];
      gradients[size + i] = totals[size + k];
      gradients[2 * size + i] = gap[k] - (k + 1 < size ? gap[k + 1] : 0);
      gradients[3 * size + i] = totals[3 * size + k];
    }
  });
}

}  // namespace REMIX_ISA
}  // namespace remix
