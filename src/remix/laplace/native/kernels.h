// All kernel headers, for the per-instruction-set translation units. No include guard: included once per unit.
#include "isa.h"
#include "threads.h"

#include "line.h"
#include "tile.h"
#include "sweep.h"
#include "rows.h"
#include "single.h"
#include "gradients.h"
#include "noise.h"

namespace remix {
namespace REMIX_ISA {
#define REMIX_INSTANTIATE_ROWS(T)                                                                                      \
  template void filter_rows<T>(const T*, int64_t, int64_t, int64_t, const T*, const int32_t*, const T*, bool, const T*, \
                               bool, double*, T*, int64_t, T*, int);                                                    \
  template void filter_single<T>(const T*, int64_t, const T*, const int32_t*, const T*, bool, const T*, bool, double*,  \
                                 T*, T*);                                                                               \
  template int64_t gradient_scratch<T>(int64_t, int64_t, int64_t);                                                      \
  template void gradient_rows<T>(const T*, int64_t, int64_t, int64_t, const T*, const int32_t*, const double*,          \
                                 const T*, T*, double*, double*, T*, int);                                              \
  template void sample_rows<T>(uint64_t, int64_t, int64_t, const int32_t*, const T*, const T*, T*, T*, int);
REMIX_INSTANTIATE_ROWS(float)
REMIX_INSTANTIATE_ROWS(double)
}  // namespace REMIX_ISA
}  // namespace remix

#include "fit_kernels.h"
#include "fit_reinsert.h"
#include "moments.h"
