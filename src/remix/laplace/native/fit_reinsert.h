// Sums that decide where on a chain a removed unit fits best, per instruction set.
#pragma once
#include "chain.h"

namespace remix {
namespace REMIX_ISA {
namespace chain {

// For a chain of `size` units (nodes[k] indexes the rows of u) and a removed unit with data x: per position k the sums
// over rows of x h, x rho, h h, h rho, rho rho, where h is the state predicted from below and rho the score from above.
// sums: (size + 1, 5), position `size` being just past the end (rho = 0). Lines lines of every row at once.
template <class T, int Lines>
REMIX_INLINE void smoother_block(const T* u, int64_t stride, const int64_t* nodes, const T* x, int64_t size,
                                 const Forward<T>* forward, const Backward<T>* backward, T* kept, double* sums) {
  constexpr int L = lanes<T>();
  Line<T> h[Lines], s[Lines];
  for (int b = 0; b < Lines; ++b) h[b] = s[b] = Line<T>::zero();
  for (int64_t k = 0; k < size; ++k) {
    const T* row = u + nodes[k] * stride;
    T* const out = kept + k * 2 * Lines * L;
    for (int b = 0; b < Lines; ++b) {
      const Line<T> value = Line<T>::load(row + b * L);
      h[b].store(out + 2 * b * L);
      (forward[k].inverse * (value - forward[k].weight * h[b])).store(out + (2 * b + 1) * L);
      h[b] = forward[k].gain * value + forward[k].decay * h[b];
    }
  }
  {
    Line<T> xh = Line<T>::zero(), hh = Line<T>::zero();
    for (int b = 0; b < Lines; ++b) {
      xh = xh + Line<T>::load(x + b * L) * h[b];
      hh = hh + h[b] * h[b];
    }
    sums[size * 5] += double(xh.sum());
    sums[size * 5 + 2] += double(hh.sum());
  }
  for (int64_t k = size - 1; k >= 0; --k) {
    const T* const in = kept + k * 2 * Lines * L;
    Line<T> xh = Line<T>::zero(), xr = xh, hh = xh, hr = xh, rr = xh;
    for (int b = 0; b < Lines; ++b) {
      const Line<T> state = Line<T>::load(in + 2 * b * L);
      const Line<T> own = Line<T>::load(x + b * L);
      const Line<T> rho = backward[k].weight * Line<T>::load(in + (2 * b + 1) * L) + backward[k].gam * s[b];
      xh = xh + own * state;
      xr = xr + own * rho;
      hh = hh + state * state;
      hr = hr + state * rho;
      rr = rr + rho * rho;
      s[b] = backward[k].phi * rho;
    }
    double* const out = sums + k * 5;
    out[0] += double(xh.sum());
    out[1] += double(xr.sum());
    out[2] += double(hh.sum());
    out[3] += double(hr.sum());
    out[4] += double(rr.sum());
  }
}

// `kept` holds 2 * 4 lines per position.
template <class T>
void smoother_sums(const T* u, int64_t stride, const int64_t* nodes, const T* x, const ChainFactor* factor, double end,
                   void* forward_steps, void* backward_steps, T* kept, double* sums) {
  constexpr int64_t L = lanes<T>();
  Forward<T>* const forward = static_cast<Forward<T>*>(forward_steps);
  Backward<T>* const backward = static_cast<Backward<T>*>(backward_steps);
  const int64_t size = factor->size;
  factorise(*factor);
  chain_steps<T>(*factor, forward, backward);
  forward[size - 1].decay = T(end * factor->gam[size - 1]);
  forward[size - 1].gain = T(end * factor->G[size - 1]);
  for (int64_t k = 0; k < 5 * (size + 1); ++k) sums[k] = 0;
  int64_t n = 0;
  for (; n + 4 * L <= stride; n += 4 * L)
    smoother_block<T, 4>(u + n, stride, nodes, x + n, size, forward, backward, kept, sums);
  for (; n < stride; n += L)
    smoother_block<T, 1>(u + n, stride, nodes, x + n, size, forward, backward, kept, sums);
}

template void smoother_sums<float>(const float*, int64_t, const int64_t*, const float*, const ChainFactor*, double,
                                   void*, void*, float*, double*);
template void smoother_sums<double>(const double*, int64_t, const int64_t*, const double*, const ChainFactor*, double,
                                    void*, void*, double*, double*);

}  // namespace chain
}  // namespace REMIX_ISA
}  // namespace remix
