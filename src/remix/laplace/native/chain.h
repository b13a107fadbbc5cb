// Sweeps along the sorted chain of a Laplace covariance, for data kept as tiles.
//
// A tile is [position k][lane]: one cache line (16 float or 8 double rows) per position, positions in sorted order. Rows
// beyond the data are zeros; they add nothing to any sum. Per position the coefficients are computed in double and
// stored in the type of the data (docs/mathematics.md: the error of the float sweeps stays near 1e-7).
#pragma once
#include "chain_factor.h"
#include "isa.h"
#include "line.h"

namespace remix {
namespace REMIX_ISA {
namespace chain {

constexpr int64_t kLine = 64;   // bytes of one position of a tile
constexpr int64_t kChunk = 64;  // positions between two kept states; a chunk of everything fits the first cache

// Fills P, C, S, G, gam, N and f from diag, weight and phi (phi[0] is not read: the chain starts there).
// Returns log det.
REMIX_INLINE double factorise(const ChainFactor& c) {
  double P = 1, C = 0;
  for (int64_t k = 0; k < c.size; ++k) {
    const double d = c.diag[k], w = c.weight[k];
    const double S = d + w * w * P, inverse = 1 / S;
    c.P[k] = P, c.C[k] = C, c.S[k] = S, c.G[k] = w * P * inverse, c.gam[k] = d * inverse;
    if (k + 1 == c.size) break;
    const double phi = c.phi[k + 1], square = phi * phi;
    C = square * (d * C + w * w * P) * inverse;
    P = square * (d * P) * inverse + (1 - phi) * (1 + phi);
  }
  double N = 0, f = 0;
  for (int64_t k = c.size - 1; k >= 0; --k) {
    c.f[k] = f;
    c.N[k] = N = c.gam[k] * c.gam[k] * f + c.weight[k] * c.weight[k] / c.S[k];
    f = c.phi[k] * c.phi[k] * N;
  }
  double logdet = 0;
  for (int64_t k = 0; k < c.size; ++k) logdet += __builtin_log(c.S[k]);
  return logdet;
}

// Coefficients of one position. Forward: v = x - weight h, e = v inverse, h' = decay h + gain x.
template <class T>
struct Forward {
  T weight, inverse, decay, gain;
};
// Backward: g = e - G s, rho = gam s + weight e, s' = phi rho; smoothed state h + P rho, leverage h - C rho.
template <class T>
struct Backward {
  T weight, G, gam, phi, P, C;
};

template <class T>
REMIX_INLINE void chain_steps(const ChainFactor& c, Forward<T>* forward, Backward<T>* backward) {
  for (int64_t k = 0; k < c.size; ++k) {
    const double next = k + 1 < c.size ? c.phi[k + 1] : 0;
    forward[k] = {T(c.weight[k]), T(1 / c.S[k]), T(next * c.gam[k]), T(next * c.G[k])};
    if (backward)
      backward[k] = {T(c.weight[k]), T(c.G[k]), T(c.gam[k]), k ? T(c.phi[k]) : T(0), T(c.P[k]), T(c.C[k])};
  }
}

// Quadratic form of each lane of one tile into quadratic[lane]; keeps the state at every chunk start where `states`
// (chunks lines) is given. Float sums run over one chunk only, then double.
template <class T>
REMIX_INLINE void chain_forward(const T* tile, int64_t size, const Forward<T>* steps, T* states, double* quadratic) {
  constexpr int L = lanes<T>();
  double total[L] = {};
  Line<T> h = Line<T>::zero();
  for (int64_t start = 0, chunk = 0; start < size; start += kChunk, ++chunk) {
    const int64_t stop = start + kChunk < size ? start + kChunk : size;
    if (states) h.store(states + chunk * L);
    Line<T> sum = Line<T>::zero();
    for (int64_t k = start; k < stop; ++k) {
      const Line<T> x = Line<T>::load(tile + k * L);
      const Line<T> v = x - steps[k].weight * h;
      sum = sum + v * (steps[k].inverse * v);
      h = steps[k].gain * x + steps[k].decay * h;
    }
    T lane[L];
    __builtin_memcpy(lane, &sum, sizeof lane);
    for (int n = 0; n < L; ++n) total[n] += double(lane[n]);
  }
  for (int n = 0; n < L; ++n) quadratic[n] = total[n];
}

// Scratch of chain_backward for `count` tiles, in bytes.
template <class T>
REMIX_INLINE int64_t chain_scratch(int64_t count) {
  return (2 * kChunk + 3 * kChunk + count) * kLine;
}

// After chain_forward with states: sums over the lanes of `count` tiles of t g^2, t g zhat and t rho (h - C rho), per
// position, for row weights t = weights[tile][lane] (null: all 1), and, if weighted, of t g. sums[0..2], or [0..3], hold
// `size` values each and are written in eights from the last chunk down, in this order: they may follow each other,
// with eight spare values after the last.
// solved (may be null) receives t g, g = Sigma^-1 x, as tiles; solved[t] may be tiles[t] itself. The states inside a
// chunk are computed again from the kept one, so nothing of the size of a tile is written. `scratch` is aligned to a
// cache line.
template <class T, bool weighted>
REMIX_INLINE void chain_backward(const T* const* tiles, int64_t count, int64_t size, const Forward<T>* forward,
                                 const Backward<T>* backward, const T* const* states, const T* const* weights,
                                 T* scratch, T* const* sums, T* const* solved) {
  constexpr int L = lanes<T>();
  using Vec = typename Line<T>::vec;
  T* const kept_h = scratch;
  T* const kept_e = kept_h + kChunk * L;
  T* const carried = kept_e + kChunk * L;
  Vec* const square = reinterpret_cast<Vec*>(carried + count * L);
  Vec* const smooth = square + kChunk;
  Vec* const leverage = smooth + kChunk;
  Vec* const plain = leverage + kChunk;
  for (int64_t t = 0; t < count; ++t) Line<T>::zero().store(carried + t * L);
  const int64_t chunks = (size + kChunk - 1) / kChunk;
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const int64_t start = chunk * kChunk;
    const int64_t length = start + kChunk < size ? kChunk : size - start;
    for (int64_t t = 0; t < count; ++t) {
      const T* x_chunk = tiles[t] + start * L;
      Line<T> h = Line<T>::load(states[t] + chunk * L);
      for (int64_t k = 0; k < length; ++k) {
        const Forward<T>& step = forward[start + k];
        const Line<T> x = Line<T>::load(x_chunk + k * L);
        h.store(kept_h + k * L);
        (step.inverse * (x - step.weight * h)).store(kept_e + k * L);
        h = step.gain * x + step.decay * h;
      }
      const Line<T> row_weight = weighted ? Line<T>::load(weights[t]) : Line<T>::zero();
      Line<T> s = Line<T>::load(carried + t * L);
      for (int64_t k = length - 1; k >= 0; --k) {
        const Backward<T>& step = backward[start + k];
        const Line<T> e = Line<T>::load(kept_e + k * L);
        const Line<T> state = Line<T>::load(kept_h + k * L);
        const Line<T> g = e - step.G * s;
        const Line<T> rho = step.weight * e + step.gam * s;
        const Line<T> tg = weighted ? row_weight * g : g, trho = weighted ? row_weight * rho : rho;
        const Vec gg = (tg * g).folded();
        const Vec gz = (tg * (state + step.P * rho)).folded();
        const Vec rl = (trho * (state - step.C * rho)).folded();
        square[k] = t ? square[k] + gg : gg;
        smooth[k] = t ? smooth[k] + gz : gz;
        leverage[k] = t ? leverage[k] + rl : rl;
        if (weighted) plain[k] = t ? plain[k] + tg.folded() : tg.folded();
        if (solved) tg.store(solved[t] + (start + k) * L);
        s = step.phi * rho;
      }
      s.store(carried + t * L);
    }
    sum_folded<T>(square, length, sums[0] + start);
    sum_folded<T>(smooth, length, sums[1] + start);
    sum_folded<T>(leverage, length, sums[2] + start);
    if (weighted) sum_folded<T>(plain, length, sums[3] + start);
  }
}

}  // namespace chain
}  // namespace REMIX_ISA
}  // namespace remix
