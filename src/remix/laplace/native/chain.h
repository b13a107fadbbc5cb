// Sweeps along the sorted chain of a Laplace covariance, for data kept as tiles.
//
// A tile is [position k][lane]: one cache line (16 float or 8 double rows) per position, positions in sorted order. Rows
// beyond the data are zeros; they add nothing to any sum. Per position the coefficients are computed in double and
// stored in the type of the data (laplace.md, "Pitfalls": the error of the float sweeps stays near 1e-7).
#pragma once
#include "chain_factor.h"
#include "isa.h"

namespace remix {
namespace REMIX_ISA {
namespace chain {

constexpr int64_t kLine = 64;   // bytes of one position of a tile
constexpr int64_t kChunk = 64;  // positions between two kept states; a chunk of everything fits the first cache

template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(REMIX_VECTOR_BYTES)));
  static constexpr int count = kLine / sizeof(T);
  static constexpr int parts = kLine / REMIX_VECTOR_BYTES;
  static constexpr int width = REMIX_VECTOR_BYTES / sizeof(T);
};

// One cache line in registers. A struct of native vectors: compilers keep it in registers, which they do not always do
// for a vector type wider than the machine's.
template <class T>
struct Line {
  using V = typename Lanes<T>::Vector;
  static constexpr int parts = Lanes<T>::parts;
  V part[parts];

  static REMIX_INLINE Line load(const T* from) {
    Line line;
    for (int p = 0; p < parts; ++p) line.part[p] = reinterpret_cast<const V*>(from)[p];
    return line;
  }
  static REMIX_INLINE Line zero() {
    Line line;
    for (int p = 0; p < parts; ++p) line.part[p] = V{};
    return line;
  }
  REMIX_INLINE void store(T* to) const {
    for (int p = 0; p < parts; ++p) reinterpret_cast<V*>(to)[p] = part[p];
  }
  friend REMIX_INLINE Line operator+(Line a, const Line& b) {
    for (int p = 0; p < parts; ++p) a.part[p] += b.part[p];
    return a;
  }
  friend REMIX_INLINE Line operator-(Line a, const Line& b) {
    for (int p = 0; p < parts; ++p) a.part[p] -= b.part[p];
    return a;
  }
  friend REMIX_INLINE Line operator*(Line a, const Line& b) {
    for (int p = 0; p < parts; ++p) a.part[p] *= b.part[p];
    return a;
  }
  friend REMIX_INLINE Line operator*(T scalar, Line a) {
    for (int p = 0; p < parts; ++p) a.part[p] *= scalar;
    return a;
  }
  REMIX_INLINE T sum() const {  // of all lanes, always in the same order
    V all = part[0];
    for (int p = 1; p < parts; ++p) all += part[p];
    T lane[Lanes<T>::width];
    __builtin_memcpy(lane, &all, sizeof lane);
    for (int half = Lanes<T>::width / 2; half; half /= 2)
      for (int n = 0; n < half; ++n) lane[n] += lane[n + half];
    return lane[0];
  }
};

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
  constexpr int lanes = Lanes<T>::count;
  double total[lanes] = {};
  Line<T> h = Line<T>::zero();
  for (int64_t start = 0, chunk = 0; start < size; start += kChunk, ++chunk) {
    const int64_t stop = start + kChunk < size ? start + kChunk : size;
    if (states) h.store(states + chunk * lanes);
    Line<T> sum = Line<T>::zero();
    for (int64_t k = start; k < stop; ++k) {
      const Line<T> x = Line<T>::load(tile + k * lanes);
      const Line<T> v = x - steps[k].weight * h;
      sum = sum + v * (steps[k].inverse * v);
      h = steps[k].gain * x + steps[k].decay * h;
    }
    T lane[lanes];
    __builtin_memcpy(lane, &sum, sizeof lane);
    for (int n = 0; n < lanes; ++n) total[n] += double(lane[n]);
  }
  for (int n = 0; n < lanes; ++n) quadratic[n] = total[n];
}

// Scratch of chain_backward for `count` tiles, in bytes.
template <class T>
REMIX_INLINE int64_t chain_scratch(int64_t count) {
  return (2 * kChunk + 3 * kChunk + count) * kLine;
}

// After chain_forward with states: sums over the lanes of `count` tiles of g^2, g zhat and rho (h - C rho), per position:
// sums[0..2] are arrays of `size` and are overwritten. solved (may be null) receives g = Sigma^-1 x as tiles; solved[t]
// may be tiles[t] itself. The states inside a chunk are computed again from the kept one, so nothing of the size of a
// tile is written. `scratch` is aligned to a cache line.
template <class T>
REMIX_INLINE void chain_backward(const T* const* tiles, int64_t count, int64_t size, const Forward<T>* forward,
                                 const Backward<T>* backward, const T* const* states, T* scratch, T* const sums[3],
                                 T* const* solved) {
  constexpr int lanes = Lanes<T>::count;
  T* const kept_h = scratch;
  T* const kept_e = kept_h + kChunk * lanes;
  T* const square = kept_e + kChunk * lanes;
  T* const smooth = square + kChunk * lanes;
  T* const leverage = smooth + kChunk * lanes;
  T* const carried = leverage + kChunk * lanes;
  for (int64_t t = 0; t < count; ++t) Line<T>::zero().store(carried + t * lanes);
  const int64_t chunks = (size + kChunk - 1) / kChunk;
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const int64_t start = chunk * kChunk;
    const int64_t length = start + kChunk < size ? kChunk : size - start;
    for (int64_t t = 0; t < count; ++t) {
      const T* x_chunk = tiles[t] + start * lanes;
      Line<T> h = Line<T>::load(states[t] + chunk * lanes);
      for (int64_t k = 0; k < length; ++k) {
        const Forward<T>& step = forward[start + k];
        const Line<T> x = Line<T>::load(x_chunk + k * lanes);
        h.store(kept_h + k * lanes);
        (step.inverse * (x - step.weight * h)).store(kept_e + k * lanes);
        h = step.gain * x + step.decay * h;
      }
      Line<T> s = Line<T>::load(carried + t * lanes);
      for (int64_t k = length - 1; k >= 0; --k) {
        const Backward<T>& step = backward[start + k];
        const Line<T> e = Line<T>::load(kept_e + k * lanes);
        const Line<T> state = Line<T>::load(kept_h + k * lanes);
        const Line<T> g = e - step.G * s;
        const Line<T> rho = step.weight * e + step.gam * s;
        Line<T> gg = g * g;
        Line<T> gz = g * (state + step.P * rho);
        Line<T> rl = rho * (state - step.C * rho);
        if (t) {
          gg = gg + Line<T>::load(square + k * lanes);
          gz = gz + Line<T>::load(smooth + k * lanes);
          rl = rl + Line<T>::load(leverage + k * lanes);
        }
        gg.store(square + k * lanes);
        gz.store(smooth + k * lanes);
        rl.store(leverage + k * lanes);
        if (solved) g.store(solved[t] + (start + k) * lanes);
        s = step.phi * rho;
      }
      s.store(carried + t * lanes);
    }
    for (int64_t k = 0; k < length; ++k) {
      sums[0][start + k] = Line<T>::load(square + k * lanes).sum();
      sums[1][start + k] = Line<T>::load(smooth + k * lanes).sum();
      sums[2][start + k] = Line<T>::load(leverage + k * lanes).sum();
    }
  }
}

}  // namespace chain
}  // namespace REMIX_ISA
}  // namespace remix
