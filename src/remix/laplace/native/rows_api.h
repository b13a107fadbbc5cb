// Declarations of the row kernels of every instruction set, for the C entry points.
#pragma once
#include <cstdint>

#define REMIX_DECLARE_ROWS(isa)                                                                                       \
  namespace remix::isa {                                                                                              \
  template <class T>                                                                                                  \
  void filter_rows(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,         \
                   const T* first, bool first_down, const T* second, bool second_down, double* squares, T* out,       \
                   int64_t out_stride, T* scratch, int threads);                                                      \
  template <class T>                                                                                                  \
  void filter_single(const T* x, int64_t size, const T* loc, const int32_t* rank, const T* first, bool first_down,    \
                     const T* second, bool second_down, double* squares, T* out, T* scratch);                         \
  template <class T>                                                                                                  \
  int64_t gradient_scratch(int64_t size, int64_t tiles, int64_t workers);                                            \
  template <class T>                                                                                                  \
  void gradient_rows(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,       \
                     const double* vectors, const T* row_weight, T* out, double* totals, double* gradients,           \
                     T* scratch, int workers);                                                                        \
  template <class T>                                                                                                  \
  void sample_rows(uint64_t seed, int64_t rows, int64_t size, const int32_t* rank, const T* coef, const T* loc,       \
                   T* out, T* scratch, int workers);                                                                  \
  }

REMIX_DECLARE_ROWS(generic)
REMIX_DECLARE_ROWS(avx2)
REMIX_DECLARE_ROWS(avx512)
