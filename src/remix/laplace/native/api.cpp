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

template <class T>
static int filter(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                  const T* first, int first_down, const T* second, int second_down, double* squares, T* out,
                  int64_t out_stride, int threads) {
  const int64_t lanes = 64 / sizeof(T), tiles = (rows + lanes - 1) / lanes;
  const int64_t workers = tiles < threads ? tiles : threads;
  Scratch scratch(workers * size * 64);
  if (!scratch.data) return 1;
  if (out) advise_huge(out, rows * out_stride * sizeof(T));
  REMIX_CALL(filter_rows<T>, x, stride, rows, size, loc, rank, first, first_down != 0, second, second_down != 0,
             squares, out, out_stride, static_cast<T*>(scratch.data), static_cast<int>(workers));
  return 0;
}

}  // namespace remix

REMIX_API int remix_abi() { return 1; }

REMIX_API int remix_isa() { return static_cast<int>(remix::isa()); }

// Returns 0, or 1 when there was no memory for the scratch tiles. Shapes and meaning: rows.h.
REMIX_API int remix_filter_float(const float* x, int64_t stride, int64_t rows, int64_t size, const float* loc,
                                 const int32_t* rank, const float* first, int first_down, const float* second,
                                 int second_down, double* squares, float* out, int64_t out_stride, int threads) {
  return remix::filter(x, stride, rows, size, loc, rank, first, first_down, second, second_down, squares, out,
                       out_stride, threads);
}

REMIX_API int remix_filter_double(const double* x, int64_t stride, int64_t rows, int64_t size, const double* loc,
                                  const int32_t* rank, const double* first, int first_down, const double* second,
                                  int second_down, double* squares, double* out, int64_t out_stride, int threads) {
  return remix::filter(x, stride, rows, size, loc, rank, first, first_down, second, second_down, squares, out,
                       out_stride, threads);
}
