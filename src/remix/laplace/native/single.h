// A single row: too few to fill a tile, so it is swept as it is, in two halves side by side. The half that should start
// from the other's last state starts from 0 instead and is put right afterwards: what is missing, q_k c_{k-1} .. c_j
// times that state, dies out after a few correlation lengths. The cut depends on the size alone, so one thread and
// two give the same bits. Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

// Filters positions [begin, end) of `row` in place, in the direction of the sweep, from state 0. Returns the last
// state; adds the squares of the outputs to *squares.
template <class T>
T sweep_half(T* row, const T* coef, int64_t begin, int64_t end, bool down, double* squares) {
  T state = 0;
  double sum = 0;
  const int64_t step = down ? -1 : 1;
  int64_t k = down ? end - 1 : begin;
  for (int64_t done = begin; done < end; ++done, k += step) {
    const T* f = coef + 4 * k;
    const T in = row[k], out = f[0] * in + f[1] * state;
    state = f[2] * state + f[3] * in;
    sum += static_cast<double>(out) * static_cast<double>(out);
    row[k] = out;
  }
  *squares += sum;
  return state;
}

// Adds what a state entering [begin, end) does to the outputs there.
template <class T>
void enter_half(T* row, const T* coef, int64_t begin, int64_t end, bool down, T state, double* squares) {
  const int64_t step = down ? -1 : 1;
  int64_t k = down ? end - 1 : begin;
  for (int64_t done = begin; done < end && state != 0; ++done, k += step) {
    const T* f = coef + 4 * k;
    const double old = static_cast<double>(row[k]);
    row[k] += f[1] * state;
    *squares += static_cast<double>(row[k]) * static_cast<double>(row[k]) - old * old;
    state *= f[2];
  }
}

// As filter_rows (rows.h) for one row; `scratch` holds `size` values.
template <class T>
void filter_single(const T* x, int64_t size, const T* loc, const int32_t* rank, const T* first, bool first_down,
                   const T* second, bool second_down, double* squares, T* out, T* scratch, int threads) {
  const int64_t cut = size / 2;
  auto part = [&](int64_t task) { return task ? size : cut; };
  auto sweep = [&](const T* coef, bool down) {
    double sum[2] = {};
    T state[2];
    parallel(2, threads, [&](int64_t task, int) {
      state[task] = sweep_half(scratch, coef, task ? cut : 0, part(task), down, &sum[task]);
    });
    const int late = down ? 0 : 1;
    enter_half(scratch, coef, late ? cut : 0, part(late), down, state[1 - late], &sum[late]);
    return sum[0] + sum[1];
  };
  parallel(2, threads, [&](int64_t task, int) {
    for (int64_t i = task ? cut : 0; i < part(task); ++i) scratch[rank[i]] = loc ? x[i] - loc[i] : x[i];
  });
  const double sum = sweep(first, first_down);
  if (squares) *squares = sum;
  if (!out) return;
  if (second) sweep(second, second_down);
  parallel(2, threads, [&](int64_t task, int) {
    for (int64_t i = task ? cut : 0; i < part(task); ++i) out[i] = scratch[rank[i]];
  });
}

}  // namespace REMIX_ISA
}  // namespace remix
