// A single row: padding it to a tile would cost more than sweeping it as it is. On one thread: cut in two halves over
// two threads it gained a tenth on a quiet machine (1.6 to 1.5 ms for value and gradient at 200,704 coordinates) and
// lost a factor of four on a busy one. Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

// Filters a sorted row in place; returns the sum of squares of the outputs.
template <class T>
double sweep_row(T* row, const T* coef, int64_t size, bool down) {
  T state = 0;
  double sum = 0;
  const int64_t step = down ? -1 : 1;
  int64_t k = down ? size - 1 : 0;
  for (int64_t done = 0; done < size; ++done, k += step) {
    const T* f = coef + 4 * k;
    const T in = row[k], out = f[0] * in + f[1] * state;
    state = f[2] * state + f[3] * in;
    sum += static_cast<double>(out) * static_cast<double>(out);
    row[k] = out;
  }
  return sum;
}

// As filter_rows (rows.h) for one row; `scratch` holds `size` values.
template <class T>
void filter_single(const T* x, int64_t size, const T* loc, const int32_t* rank, const T* first, bool first_down,
                   const T* second, bool second_down, double* squares, T* out, T* scratch) {
  for (int64_t i = 0; i < size; ++i) scratch[rank[i]] = loc ? x[i] - loc[i] : x[i];
  const double sum = sweep_row(scratch, first, size, first_down);
  if (squares) *squares = sum;
  if (!out) return;
  if (second) sweep_row(scratch, second, size, second_down);
  for (int64_t i = 0; i < size; ++i) out[i] = scratch[rank[i]];
}

}  // namespace REMIX_ISA
}  // namespace remix
