// Gradients of the weighted negative log-likelihood in the rows and, summed over rows, in the parameters
// (docs/mathematics.md): the sweeps of chain.h on tiles of rows. Included once per instruction set.
#include "chain.h"

namespace remix {
namespace REMIX_ISA {

// x: `rows` rows of `size`. Writes out (rows, size) = t_b g_b and totals (3, size), in sorted order. Tiles are summed in
// double and in their order, whatever the threads do. `scratch`: gradient_scratch() values, 64-byte aligned.
using chain::kChunk;
constexpr int64_t kWave = 8;  // tiles whose sums are held at a time

template <class T>
int64_t gradient_scratch(int64_t size, int64_t workers) {
  const int64_t chunks = (size + kChunk - 1) / kChunk, padded = (size + 15) / 16 * 16;
  return 10 * padded + kWave * 3 * padded + workers * (size + chunks + 5 * kChunk + 2) * lanes<T>();
}

template <class T>
void gradient_rows(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                   const double* vectors, const T* row_weight, T* out, double* totals, T* scratch, int workers) {
  constexpr int L = lanes<T>();
  const int64_t chunks = (size + kChunk - 1) / kChunk, padded = (size + 15) / 16 * 16;
  chain::Forward<T>* forward = reinterpret_cast<chain::Forward<T>*>(scratch);
  chain::Backward<T>* backward = reinterpret_cast<chain::Backward<T>*>(scratch + 4 * padded);
  T* sums = scratch + 10 * padded;
  T* own = sums + kWave * 3 * padded;
  const int64_t own_size = (size + chunks + 5 * kChunk + 2) * L;
  chain::chain_steps<T>(chain_factor(vectors, size), forward, backward);
  for (int64_t k = 0; k < 3 * size; ++k) totals[k] = 0;
  const bool stream = rows * size * static_cast<int64_t>(sizeof(T)) > (int64_t{8} << 20);
  const int64_t tiles = (rows + L - 1) / L;
  for (int64_t wave = 0; wave < tiles; wave += kWave) {
    const int64_t count = tiles - wave < kWave ? tiles - wave : kWave;
    parallel(count, workers, [&](int64_t task, int worker) {
      const int64_t begin = rows * (wave + task) / tiles, end = rows * (wave + task + 1) / tiles;
      const int height = static_cast<int>(end - begin);
      T* tile = own + worker * own_size;
      T* states = tile + size * L;
      T* weights = states + chunks * L;
      T* sum = sums + task * 3 * padded;
      T* const place[3] = {sum, sum + padded, sum + 2 * padded};
      for (int b = 0; b < L; ++b) weights[b] = b < height ? row_weight[begin + b] : T(0);
      load_tile(x + begin * stride, stride, height, loc, rank, size, tile);
      double quadratic[L];
      chain::chain_forward<T>(tile, size, forward, states, quadratic);
      const T* const tiles_of[1] = {tile};
      const T* const states_of[1] = {states};
      const T* const weights_of[1] = {weights};
      T* const solved[1] = {tile};
      chain::chain_backward<T, true>(tiles_of, 1, size, forward, backward, states_of, weights_of, weights + L, place,
                                     solved);
      store_tile<T>(tile, rank, size, nullptr, out + begin * size, size, height, stream);
    });
    parallel(3, workers, [&](int64_t which, int) {
      for (int64_t task = 0; task < count; ++task)
        for (int64_t k = 0; k < size; ++k)
          totals[which * size + k] += static_cast<double>(sums[(task * 3 + which) * padded + k]);
    });
  }
}

}  // namespace REMIX_ISA
}  // namespace remix
