// Gradients of the weighted negative log-likelihood in the rows and, summed over rows, in the parameters (laplace.md,
// "Gradients of the NLL"). The states inside a chunk of positions are computed again from the one kept at its start, so
// nothing of the size of a tile is needed besides the tile itself. Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

constexpr int64_t kChunk = 64;  // positions between two kept states: all of a chunk fits the first-level cache

// Forward: v = x - weight h, e = v inverse, h' = decay h + gain x.
template <class T>
struct Forward {
  T weight, inverse, decay, gain;
};
// Backward: g = e - G s, rho = gam s + weight e, s' = phi rho; smoothed state h + P rho, its complement h - C rho.
template <class T>
struct Backward {
  T weight, G, gam, phi, P, C;
};

// vectors (10, size): those of the factorisation (factor.cpp).
template <class T>
void gradient_steps(const double* vectors, int64_t size, Forward<T>* forward, Backward<T>* backward) {
  const double *weight = vectors + size, *phi = vectors + 2 * size, *P = vectors + 3 * size, *C = vectors + 4 * size,
               *S = vectors + 5 * size, *G = vectors + 6 * size, *gam = vectors + 7 * size;
  for (int64_t k = 0; k < size; ++k) {
    const double next = k + 1 < size ? phi[k + 1] : 0;
    forward[k] = {T(weight[k]), T(1 / S[k]), T(next * gam[k]), T(next * G[k])};
    backward[k] = {T(weight[k]), T(G[k]), T(gam[k]), T(phi[k]), T(P[k]), T(C[k])};
  }
}

// The state at the start of every chunk, (chunks, L).
template <class T>
void chunk_states(const T* tile, int64_t size, const Forward<T>* forward, T* states) {
  constexpr int L = lanes<T>();
  Line<T> h = Line<T>::zero();
  for (int64_t k = 0; k < size; ++k) {
    if (k % kChunk == 0) h.store(states + k / kChunk * L);
    h = forward[k].gain * Line<T>::load(tile + k * L) + forward[k].decay * h;
  }
}

// Turns the centred rows of a tile into t g, g = Sigma^-1 x, in place, for row weights t (L); sums[0..2] (size each)
// become the sums over rows of t g^2, t g (h + P rho) and t rho (h - C rho); they are written in eights, so their arrays
// are padded. scratch: 5 kChunk lines.
template <class T>
void gradient_tile(T* tile, int64_t size, const Forward<T>* forward, const Backward<T>* backward, const T* row_weight,
                   const T* states, T* scratch, T* const* sums) {
  constexpr int L = lanes<T>();
  using Vec = typename Line<T>::vec;
  T *kept_h = scratch, *kept_e = kept_h + kChunk * L;
  Vec *gg = reinterpret_cast<Vec*>(kept_e + kChunk * L), *gz = gg + kChunk, *rl = gz + kChunk;
  const Line<T> weight = Line<T>::load(row_weight);
  Line<T> s = Line<T>::zero();
  for (int64_t chunk = (size - 1) / kChunk; chunk >= 0; --chunk) {
    const int64_t start = chunk * kChunk, length = size - start < kChunk ? size - start : kChunk;
    Line<T> h = Line<T>::load(states + chunk * L);
    for (int64_t k = 0; k < length; ++k) {
      const Forward<T>& step = forward[start + k];
      const Line<T> x = Line<T>::load(tile + (start + k) * L);
      h.store(kept_h + k * L);
      (step.inverse * (x - step.weight * h)).store(kept_e + k * L);
      h = step.gain * x + step.decay * h;
    }
    for (int64_t k = length - 1; k >= 0; --k) {
      const Backward<T>& step = backward[start + k];
      const Line<T> e = Line<T>::load(kept_e + k * L), state = Line<T>::load(kept_h + k * L);
      const Line<T> g = e - step.G * s, rho = step.gam * s + step.weight * e, weighted = weight * g;
      weighted.store(tile + (start + k) * L);
      gg[k] = (weighted * g).folded();
      gz[k] = (weighted * (state + step.P * rho)).folded();
      rl[k] = ((weight * rho) * (state - step.C * rho)).folded();
      s = step.phi * rho;
    }
    sum_folded<T>(gg, length, sums[0] + start);
    sum_folded<T>(gz, length, sums[1] + start);
    sum_folded<T>(rl, length, sums[2] + start);
  }
}

// x: `rows` rows of `size`. Writes out (rows, size) = t_b g_b and totals (3, size), in sorted order. Tiles are summed in
// double and in their order, whatever the threads do. `scratch`: gradient_scratch() values, 64-byte aligned.
constexpr int64_t kWave = 8;  // tiles whose sums are held at a time

template <class T>
int64_t gradient_scratch(int64_t size, int64_t workers) {
  const int64_t chunks = (size + kChunk - 1) / kChunk, padded = (size + 15) / 16 * 16;
  return 10 * padded + kWave * 3 * padded + workers * (size + chunks + 5 * kChunk + 1) * lanes<T>();
}

template <class T>
void gradient_rows(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                   const double* vectors, const T* row_weight, T* out, double* totals, T* scratch, int workers) {
  constexpr int L = lanes<T>();
  const int64_t chunks = (size + kChunk - 1) / kChunk, padded = (size + 15) / 16 * 16;
  Forward<T>* forward = reinterpret_cast<Forward<T>*>(scratch);
  Backward<T>* backward = reinterpret_cast<Backward<T>*>(scratch + 4 * padded);
  T* sums = scratch + 10 * padded;
  T* own = sums + kWave * 3 * padded;
  const int64_t own_size = (size + chunks + 5 * kChunk + 1) * L;
  gradient_steps(vectors, size, forward, backward);
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
      chunk_states(tile, size, forward, states);
      gradient_tile(tile, size, forward, backward, weights, states, weights + L, place);
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
