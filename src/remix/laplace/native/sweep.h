// The one recurrence behind whiten, unwhiten and their transposes: an affine filter along the sorted coordinates,
//   out_k = p_k in_k + q_k state,   state <- c_k state + e_k in_k,
// with coefficients (p, q, c, e) interleaved per position. Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

// Filters a tile in place, upwards (k = 0..size-1) or downwards. With `squares` the sum over k of out_k^2 is added to
// it, per lane: chunks in T, chunk totals in double. Without `keep` nothing is written back.
template <class T, bool squared, bool keep>
void sweep_tile(T* tile, const T* coef, int64_t size, bool downwards, double* squares) {
  constexpr int L = lanes<T>();
  constexpr int64_t chunk = 64;
  const int64_t step = downwards ? -1 : 1;
  int64_t k = downwards ? size - 1 : 0;
  Line<T> state = Line<T>::zero();
  double total[L] = {};
  for (int64_t done = 0; done < size;) {
    const int64_t stop = done + chunk < size ? done + chunk : size;
    Line<T> partial = Line<T>::zero();
    for (; done < stop; ++done, k += step) {
      const T* f = coef + 4 * k;
      const Line<T> in = Line<T>::load(tile + k * L);
      const Line<T> out = f[0] * in + f[1] * state;
      state = f[3] * in + f[2] * state;
      if (squared) partial = partial + out * out;
      if (keep) out.store(tile + k * L);
    }
    if (squared) {
      alignas(64) T sum[L];
      partial.store(sum);
      for (int b = 0; b < L; ++b) total[b] += static_cast<double>(sum[b]);
    }
  }
  if (squared)
    for (int b = 0; b < L; ++b) squares[b] += total[b];
}

}  // namespace REMIX_ISA
}  // namespace remix
