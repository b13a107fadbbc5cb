// C entry points of fitting: likelihood of a chain with gradients, correlations of edges, the Frobenius data term.
// `_f32` and `_f64` name the type of the data; parameters and gradients are always double. Shapes in the comments.
#include <cmath>
#include <cstring>
#include <vector>

#include "chain_factor.h"
#include "isa.h"
#include "memory.h"
#include "threads.h"

#define REMIX_FIT_DECLARATIONS(space)                                                                               \
  namespace remix {                                                                                                 \
  namespace space {                                                                                                 \
  namespace chain {                                                                                                 \
  template <class T>                                                                                                \
  void fit_gather(const T*, int64_t, int64_t, const int64_t*, int64_t, int64_t, T*);                                \
  template <class T>                                                                                                \
  void fit_forward(const T*, int64_t, const void*, T*, double*);                                                    \
  template <class T>                                                                                                \
  void fit_backward(const T* const*, int64_t, int64_t, const void*, const void*, const T* const*, T*, T* const*);   \
  template <class T>                                                                                                \
  double fit_steps(const ChainFactor*, void*, void*);                                                               \
  template <class T>                                                                                                \
  void fit_edges(const T*, int64_t, const int32_t*, const int32_t*, int64_t, int64_t, double, float*);              \
  template <class T>                                                                                                \
  void fit_frobenius(const T*, int64_t, int64_t, const int64_t*, const T*, const T*, int64_t, bool, T*, T*);        \
  template <class T>                                                                                                \
  void fit_largest(const T*, int64_t, int64_t, int64_t*);                                                           \
  }                                                                                                                 \
  }                                                                                                                 \
  }
REMIX_FIT_DECLARATIONS(generic)
#if REMIX_X86
REMIX_FIT_DECLARATIONS(avx2)
REMIX_FIT_DECLARATIONS(avx512)
#endif

namespace {

using remix::ChainFactor;

constexpr int64_t kLine = 64, kChunk = 64;

// How the tiles are dealt to tasks: fixed by their number alone, so that sums do not depend on the threads. About
// four tiles share the sums of one task; an even number of tasks keeps two threads equally busy.
struct Groups {
  int64_t tiles, tasks;
  explicit Groups(int64_t count) : tiles(count), tasks(count <= 1 ? count : 2 * ((count + 7) / 8)) {}
  int64_t first(int64_t task) const { return tiles * task / tasks; }
};

// All memory of one likelihood evaluation, cut from one block that the caller keeps between calls.
template <class T>
struct Workspace {
  static constexpr int64_t lanes = kLine / sizeof(T);
  int64_t size, chunks;
  Groups groups;
  char* next;

  Workspace(void* block, int64_t size, int64_t rows)
      : size(size), chunks((size + kChunk - 1) / kChunk), groups((rows + lanes - 1) / lanes) {
    next = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block) + kLine - 1) / kLine * kLine);
  }
  template <class U>
  U* take(int64_t count) {
    char* here = next;
    next += (count * int64_t(sizeof(U)) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<U*>(here);
  }
  ChainFactor factor() {
    ChainFactor c{size, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    for (double** field : {&c.diag, &c.weight, &c.phi, &c.P, &c.C, &c.S, &c.G, &c.gam, &c.N, &c.f})
      *field = take<double>(size);
    return c;
  }
  // The layout of nll(), walked once to count.
  static int64_t bytes(int64_t size, int64_t rows) {
    Workspace w(nullptr, size, rows);
    w.factor();
    w.template take<T>(10 * size);
    w.template take<T>(w.groups.tiles * w.chunks * lanes);
    w.template take<T>(w.groups.tasks * (3 * size + 64));
    for (int64_t task = 0; task < w.groups.tasks; ++task) w.template take<char>((5 * kChunk + w.groups.tiles) * kLine);
    return reinterpret_cast<intptr_t>(w.next) + 4 * kLine;
  }
};

void correlations_to_factor(const ChainFactor& c, const double* loading, const double* phi) {
  for (int64_t k = 0; k < c.size; ++k) {
    c.weight[k] = loading[k];
    c.diag[k] = (1 - loading[k]) * (1 + loading[k]);
    c.phi[k] = k ? phi[k] : 0;
  }
}

// Gradients of the negative log-likelihood of standardised data in the loadings r and decays phi (docs/mathematics.md,
// "Likelihood and its gradients"; d = 1 - r^2), summed over rows, of the positions first..last; the sums start at `first`.
void gradients(const ChainFactor& c, int64_t first, int64_t last, double rows, const double* squares,
               const double* smooths, const double* leverages, double* loading_bar, double* phi_bar) {
  for (int64_t k = first; k < last; ++k) {
    const double diag_bar = .5 * (rows * (1 / c.S[k] + c.G[k] * c.G[k] * c.f[k]) - squares[k - first]);
    const double weight_bar = rows * c.G[k] * (1 - c.P[k] * c.gam[k] * c.f[k]) - smooths[k - first];
    loading_bar[k] = weight_bar - 2 * c.weight[k] * diag_bar;
    phi_bar[k] = k ? -(rows * c.C[k] * c.N[k] + leverages[k - first]) / c.phi[k] : 0;
  }
}

template <class T>
double nll(const T* tiles, int64_t rows, int64_t size, const double* loading, const double* phi, double* loading_bar,
           double* phi_bar, void* block, int threads) {
  Workspace<T> work(block, size, rows);
  constexpr int64_t lanes = Workspace<T>::lanes;
  const ChainFactor factor = work.factor();
  correlations_to_factor(factor, loading, phi);
  T* const forward = work.template take<T>(10 * size);
  T* const backward = forward + 4 * size;
  const double logdet = REMIX_CALL(chain::fit_steps<T>, &factor, forward, backward);
  const Groups& groups = work.groups;
  T* const states = work.template take<T>(groups.tiles * work.chunks * lanes);
  T* const sums = work.template take<T>(groups.tasks * (3 * size + 64));
  std::vector<T*> scratch(groups.tasks);
  for (T*& own : scratch) own = work.template take<T>((5 * kChunk + groups.tiles) * lanes);
  std::vector<double> quadratic(groups.tiles * lanes);
  std::vector<const T*> tile(groups.tiles), state(groups.tiles);
  for (int64_t t = 0; t < groups.tiles; ++t) {
    tile[t] = tiles + t * size * lanes;
    state[t] = states + t * work.chunks * lanes;
  }
  remix::parallel(groups.tasks, threads, [&](int64_t task, int) {
    const int64_t first = groups.first(task), last = groups.first(task + 1);
    for (int64_t t = first; t < last; ++t)
      REMIX_CALL(chain::fit_forward<T>, tile[t], size, forward, const_cast<T*>(state[t]), &quadratic[t * lanes]);
    T* const own = sums + task * (3 * size + 64);
    T* const out[3] = {own, own + size, own + 2 * size};
    REMIX_CALL(chain::fit_backward<T>, &tile[first], last - first, size, forward, backward, &state[first], scratch[task], out);
  });
  double total = 0;
  for (double q : quadratic) total += q;
  std::vector<double> sum(3 * kChunk);
  // The per-task sums are added in task order, position block by position block.
  for (int64_t start = 0; start < size; start += kChunk) {
    const int64_t length = size - start < kChunk ? size - start : kChunk;
    std::memset(sum.data(), 0, sum.size() * sizeof(double));
    for (int64_t task = 0; task < groups.tasks; ++task)
      for (int s = 0; s < 3; ++s) {
        const T* own = sums + task * (3 * size + 64) + s * size + start;
        for (int64_t k = 0; k < length; ++k) sum[s * kChunk + k] += double(own[k]);
      }
    gradients(factor, start, start + length, double(rows), &sum[0], &sum[kChunk], &sum[2 * kChunk], loading_bar,
              phi_bar);
  }
  return .5 * (double(rows) * logdet + total);
}

template <class T>
double row_forms(const T* tiles, int64_t rows, int64_t size, const double* loading, const double* phi, double* out,
                 void* block, int threads) {
  Workspace<T> work(block, size, rows);
  constexpr int64_t lanes = Workspace<T>::lanes;
  const ChainFactor factor = work.factor();
  correlations_to_factor(factor, loading, phi);
  T* const forward = work.template take<T>(10 * size);
  const double logdet = REMIX_CALL(chain::fit_steps<T>, &factor, forward, static_cast<void*>(nullptr));
  std::vector<double> quadratic(work.groups.tiles * lanes);
  remix::parallel(work.groups.tiles, threads, [&](int64_t t, int) {
    REMIX_CALL(chain::fit_forward<T>, tiles + t * size * lanes, size, forward, static_cast<T*>(nullptr), &quadratic[t * lanes]);
  });
  std::memcpy(out, quadratic.data(), rows * sizeof(double));
  return logdet;
}

template <class T>
void gather(const T* u, int64_t stride, int64_t size, const int64_t* order, T* tiles, int threads) {
  constexpr int64_t block = 2048;
  remix::parallel((size + block - 1) / block, threads, [&](int64_t task, int) {
    const int64_t first = task * block, last = first + block < size ? first + block : size;
    REMIX_CALL(chain::fit_gather<T>, u, stride, size, order, first, last, tiles);
  });
}

template <class T>
void edges(const T* u, int64_t stride, const int32_t* from, const int32_t* to, int64_t count, double scale, float* out,
           int threads) {
  constexpr int64_t block = 1 << 15;
  remix::parallel((count + block - 1) / block, threads, [&](int64_t task, int) {
    const int64_t first = task * block, last = first + block < count ? first + block : count;
    REMIX_CALL(chain::fit_edges<T>, u, stride, from, to, first, last, scale, out);
  });
}

template <class T>
void largest(const T* products, int64_t rows, int64_t size, int64_t count, int64_t* best, int threads) {
  remix::parallel((rows + 63) / 64, threads, [&](int64_t task, int) {
    for (int64_t row = 64 * task; row < rows && row < 64 * (task + 1); ++row)
      REMIX_CALL(chain::fit_largest<T>, products + row * size, size, count, best + row * count);
  });
}

// Q = sum_n (w v_n)' K (w v_n) and its gradients (docs/mathematics.md). Up to four column blocks for many
// samples; one task per block and direction, added in a fixed order.
template <class T>
double frobenius(const T* v, int64_t stride, int64_t rows, int64_t size, const int64_t* order, const T* weight,
                 const T* coord, T* weight_bar, T* coord_bar, int threads) {
  const int64_t blocks = rows <= 512 ? 1 : rows <= 2048 ? 2 : 4;
  const remix::Scratch scratch((2 + 3 * blocks) * size * sizeof(T));
  std::vector<T> instead(scratch.data ? 0 : (2 + 3 * blocks) * size);
  T *const w = scratch.data ? static_cast<T*>(scratch.data) : instead.data(), *const phi = w + size, *const sums = phi + size;  // per block: below, above, squares
  constexpr int64_t span = 1 << 14;  // positions of one task where the work is per position
  const int64_t spans = (size + span - 1) / span;
  remix::parallel(spans, threads, [&](int64_t task, int) {
    const int64_t first = task * span, last = first + span < size ? first + span : size;
    double before = first ? double(coord[order[first - 1]]) : 0;
    for (int64_t k = first; k < last; ++k) {
      const double here = double(coord[order[k]]);
      w[k] = weight[order[k]];
      phi[k] = k ? T(std::exp(before - here)) : T(0);
      before = here;
    }
  });
  remix::parallel(2 * blocks, threads, [&](int64_t task, int) {
    const int64_t block = task / 2, first = rows * block / blocks, last = rows * (block + 1) / blocks;
    T* const own = sums + 3 * block * size;
    const bool down = task % 2;
    std::memset(down ? own + size : own, 0, size * sizeof(T));
    if (!down) std::memset(own + 2 * size, 0, size * sizeof(T));
    REMIX_CALL(chain::fit_frobenius<T>, v + first, stride, size, order, w, phi, last - first, down,
               down ? own + size : own, down ? nullptr : own + 2 * size);
  });
  std::vector<double> totals(spans);
  remix::parallel(spans, threads, [&](int64_t task, int) {
    const int64_t first = task * span, last = first + span < size ? first + span : size;
    double total = 0;
    for (int64_t k = first; k < last; ++k) {
      double below = 0, above = 0, squares = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        const T* own = sums + 3 * block * size + k;
        below += double(own[0]), above += double(own[size]), squares += double(own[2 * size]);
      }
      const double here = double(w[k]);
      total += here * (here * squares + 2 * below);
      weight_bar[order[k]] = T(2 * (here * squares + below + above));
      coord_bar[order[k]] = T(2 * here * (above - below));
    }
    totals[task] = total;
  });
  double total = 0;
  for (double part : totals) total += part;
  return total;
}

}  // namespace

#define REMIX_FIT_API(T, suffix)                                                                                       \
  /* Bytes of the block that nll and rows below work in. */                                                            \
  REMIX_API int64_t remix_fit_workspace_##suffix(int64_t size, int64_t rows) {                                         \
    return Workspace<T>::bytes(size, rows);                                                                            \
  }                                                                                                                    \
  /* u (units, stride) -> tiles (stride/lanes, size, lanes) of the units order[0..size-1]. */                          \
  REMIX_API void remix_fit_tiles_##suffix(const T* u, int64_t stride, int64_t size, const int64_t* order, T* tiles,    \
                                          int threads) {                                                               \
    gather<T>(u, stride, size, order, tiles, threads);                                                                 \
  }                                                                                                                    \
  /* Sum over rows of the negative log-likelihood without its 2 pi part; gradients in loading and phi, (size,). */     \
  REMIX_API double remix_fit_nll_##suffix(const T* tiles, int64_t rows, int64_t size, const double* loading,           \
                                          const double* phi, double* loading_bar, double* phi_bar, void* block,        \
                                          int threads) {                                                               \
    return nll<T>(tiles, rows, size, loading, phi, loading_bar, phi_bar, block, threads);                              \
  }                                                                                                                    \
  /* Quadratic form of every row, (rows,); returns log det. */                                                         \
  REMIX_API double remix_fit_rows_##suffix(const T* tiles, int64_t rows, int64_t size, const double* loading,          \
                                           const double* phi, double* out, void* block, int threads) {                 \
    return row_forms<T>(tiles, rows, size, loading, phi, out, block, threads);                                         \
  }                                                                                                                    \
  /* out[e] = scale <u_from, u_to>. */                                                                                 \
  REMIX_API void remix_fit_edges_##suffix(const T* u, int64_t stride, const int32_t* from, const int32_t* to,          \
                                          int64_t count, double scale, float* out, int threads) {                      \
    edges<T>(u, stride, from, to, count, scale, out, threads);                                                         \
  }                                                                                                                    \
  /* products (rows, size) -> columns of the count <= 64 largest magnitudes of each row, best (rows, count). */         \
  REMIX_API void remix_fit_largest_##suffix(const T* products, int64_t rows, int64_t size, int64_t count,              \
                                            int64_t* best, int threads) {                                              \
    largest<T>(products, rows, size, count, best, threads);                                                            \
  }                                                                                                                    \
  /* v (size, stride), order = argsort of coord, weight and coord (size,) -> Q; dQ/dw, dQ/da (size,). */              \
  REMIX_API double remix_frobenius_##suffix(const T* v, int64_t stride, int64_t rows, int64_t size,                    \
                                            const int64_t* order, const T* weight, const T* coord, T* weight_bar,      \
                                            T* coord_bar, int threads) {                                               \
    return frobenius<T>(v, stride, rows, size, order, weight, coord, weight_bar, coord_bar, threads);                  \
  }
REMIX_FIT_API(float, f32)
REMIX_FIT_API(double, f64)
