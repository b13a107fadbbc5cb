// Version, instruction-set choice and the row operators, behind a C ABI.
#include <cstdlib>
#include <cstring>

#include "isa.h"
#include "memory.h"
#include "rows_api.h"

namespace remix {

Isa isa() {
  static const Isa best = [] {
    Isa found = Isa::generic;
#if REMIX_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found = Isa::avx2;
    if (found == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
      found = Isa::avx512;
    const char* wish = std::getenv("REMIX_ISA");
    if (wish && !std::strcmp(wish, "generic")) found = Isa::generic;
    if (wish && !std::strcmp(wish, "avx2") && found == Isa::avx512) found = Isa::avx2;
#endif
    return found;
  }();
  return best;
}

constexpr int64_t worth_threads = 65536;  // values, below which starting a thread costs more than it saves

template <class T>
static int filter(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                  const T* first, int first_down, const T* second, int second_down, double* squares, T* out,
                  int64_t out_stride, int threads) {
  const int64_t lanes = 64 / sizeof(T), tiles = (rows + lanes - 1) / lanes;
  if (rows * size < worth_threads) threads = 1;
  const int workers = static_cast<int>(tiles < threads ? tiles : threads);
  Scratch scratch(rows == 1 ? size * sizeof(T) : workers * size * 64);
  if (!scratch.data) return 1;
  T* work = static_cast<T*>(scratch.data);
  if (rows == 1) {
    REMIX_CALL(filter_single<T>, x, size, loc, rank, first, first_down != 0, second, second_down != 0, squares, out,
               work);
  } else {
    REMIX_CALL(filter_rows<T>, x, stride, rows, size, loc, rank, first, first_down != 0, second, second_down != 0,
               squares, out, out_stride, work, workers);
  }
  return 0;
}

template <class T>
static int gradients(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                     const double* vectors, const T* row_weight, T* out, double* gradients, int threads) {
  const int64_t lanes = 64 / sizeof(T), tiles = (rows + lanes - 1) / lanes;
  if (rows * size < worth_threads) threads = 1;
  const int workers = static_cast<int>(tiles < threads ? tiles : threads);
  const size_t work = REMIX_CALL(gradient_scratch<T>, size, tiles, workers) * sizeof(T);
  Scratch scratch(work + 4 * size * sizeof(double));
  if (!scratch.data) return 1;
  double* totals = reinterpret_cast<double*>(static_cast<char*>(scratch.data) + work);
  REMIX_CALL(gradient_rows<T>, x, stride, rows, size, loc, rank, vectors, row_weight, out, totals, gradients,
             static_cast<T*>(scratch.data), workers);
  return 0;
}

template <class T>
static int sample(uint64_t seed, int64_t rows, int64_t size, const int32_t* rank, const T* coef, const T* loc, T* out,
                  int threads) {
  const int64_t lanes = 64 / sizeof(T), tiles = (rows + lanes - 1) / lanes;
  if (rows * size < worth_threads) threads = 1;
  const int workers = static_cast<int>(tiles < threads ? tiles : threads);
  Scratch scratch(workers * size * 64);
  if (!scratch.data) return 1;
  REMIX_CALL(sample_rows<T>, seed, rows, size, rank, coef, loc, out, static_cast<T*>(scratch.data), workers);
  return 0;
}

}  // namespace remix

REMIX_API int remix_abi() { return 2; }

REMIX_API int remix_isa() { return static_cast<int>(remix::isa()); }

// Returns 0, or 1 when there was no memory for the scratch. Shapes and meaning: rows.h.
#define REMIX_FILTER_API(T)                                                                                            \
  REMIX_API int remix_filter_##T(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc,                 \
                                 const int32_t* rank, const T* first, int first_down, const T* second,                 \
                                 int second_down, double* squares, T* out, int64_t out_stride, int threads) {          \
    return remix::filter(x, stride, rows, size, loc, rank, first, first_down, second, second_down, squares, out,       \
                         out_stride, threads);                                                                         \
  }
REMIX_FILTER_API(float)
REMIX_FILTER_API(double)

// Returns 0, or 1 when there was no memory for the scratch. Shapes and meaning: gradients.h.
#define REMIX_GRADIENTS_API(T)                                                                                         \
  REMIX_API int remix_gradients_##T(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc,              \
                                    const int32_t* rank, const double* vectors, const T* row_weight, T* out,           \
                                    double* gradients, int threads) {                                                  \
    return remix::gradients(x, stride, rows, size, loc, rank, vectors, row_weight, out, gradients, threads);           \
  }
REMIX_GRADIENTS_API(float)
REMIX_GRADIENTS_API(double)

// Returns 0, or 1 when there was no memory for the scratch. Shapes and meaning: noise.h.
#define REMIX_SAMPLE_API(T)                                                                                            \
  REMIX_API int remix_sample_##T(uint64_t seed, int64_t rows, int64_t size, const int32_t* rank, const T* coef,        \
                                 const T* loc, T* out, int threads) {                                                  \
    return remix::sample(seed, rows, size, rank, coef, loc, out, threads);                                             \
  }
REMIX_SAMPLE_API(float)
REMIX_SAMPLE_API(double)
