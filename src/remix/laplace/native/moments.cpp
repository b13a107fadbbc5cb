// C entry points for moments of activations (moments.h). Arrays (images, D, P) are contiguous.
#include <new>

#include "isa.h"
#include "memory.h"
#include "threads.h"

#define REMIX_DECLARE_MOMENTS(isa_name)                                                                            \
  namespace isa_name {                                                                                             \
  template <class T>                                                                                               \
  int64_t moment_scratch(int64_t, bool);                                                                           \
  template <class T>                                                                                               \
  void moment_sums(const T*, int64_t, int64_t, int64_t, const T*, bool, void*, double*);                           \
  template <class T>                                                                                               \
  void add_affine(const T*, const T*, int64_t, int64_t, int64_t, const T*, const T*, bool, void*, T*);             \
  }

namespace remix {
REMIX_DECLARE_MOMENTS(generic)
REMIX_DECLARE_MOMENTS(avx2)
REMIX_DECLARE_MOMENTS(avx512)
}  // namespace remix

namespace {

using remix::parallel;

constexpr int64_t kTaskNumbers = 131072;  // numbers of x per task: fixed, so that sums do not depend on the threads

int64_t images_per_task(int64_t dim, int64_t positions) {
  const int64_t count = kTaskNumbers / (dim * positions);
  return count > 0 ? count : 1;
}

template <class T>
int moments(const T* x, int64_t images, int64_t dim, int64_t positions, const T* origin, int full, double* out,
            int threads) {
  const int64_t group = images_per_task(dim, positions), tasks = (images + group - 1) / group;
  const int64_t numbers = dim + (full ? dim * dim : dim);
  const int64_t each = (REMIX_CALL(moment_scratch<T>, dim, full != 0) + 63) / 64 * 64;
  remix::Scratch scratch(size_t(each * threads) + size_t(tasks * numbers) * sizeof(double));
  if (!scratch.data) return 1;
  char* tiles = static_cast<char*>(scratch.data);
  double* sums = reinterpret_cast<double*>(tiles + each * threads);
  parallel(tasks, threads, [&](int64_t task, int worker) {
    const int64_t first = task * group, count = images - first < group ? images - first : group;
    REMIX_CALL(moment_sums<T>, x + first * dim * positions, count, dim, positions, origin, full != 0,
               tiles + worker * each, sums + task * numbers);
  });
  for (int64_t k = 0; k < numbers; ++k) out[k] = sums[k];
  for (int64_t task = 1; task < tasks; ++task)
    for (int64_t k = 0; k < numbers; ++k) out[k] += sums[task * numbers + k];
  return 0;
}

template <class T>
int affine(const T* x, const T* given, int64_t images, int64_t dim, int64_t positions, const T* slope, const T* shift,
           int full, T* out, int threads) {
  const int64_t group = images_per_task(dim, positions), tasks = (images + group - 1) / group;
  const int64_t each = (REMIX_CALL(moment_scratch<T>, dim, full != 0) + 63) / 64 * 64;
  remix::Scratch scratch(size_t(each * threads));
  if (!scratch.data) return 1;
  char* tiles = static_cast<char*>(scratch.data);
  parallel(tasks, threads, [&](int64_t task, int worker) {
    const int64_t first = task * group, count = images - first < group ? images - first : group;
    const int64_t at = first * dim * positions;
    REMIX_CALL(add_affine<T>, x + at, given ? given + at : nullptr, count, dim, positions, slope, shift, full != 0,
               tiles + worker * each, out + at);
  });
  return 0;
}

}  // namespace

// out: sums of y (D), then of y y' (D, D) if full, else of y * y (D), for y = x - origin. Returns 0, or 1 without memory.
REMIX_API int remix_moments_f32(const float* x, int64_t images, int64_t dim, int64_t positions, const float* origin,
                                int full, double* out, int threads) {
  return moments<float>(x, images, dim, positions, origin, full, out, threads);
}
REMIX_API int remix_moments_f64(const double* x, int64_t images, int64_t dim, int64_t positions, const double* origin,
                                int full, double* out, int threads) {
  return moments<double>(x, images, dim, positions, origin, full, out, threads);
}

// out = given + slope x + shift, with slope (D rounded up to a multiple of 4, D) and shift as long, zeros beyond D; or,
// not full, both (D). given may be null. Returns 0, or 1 without memory.
REMIX_API int remix_affine_f32(const float* x, const float* given, int64_t images, int64_t dim, int64_t positions,
                               const float* slope, const float* shift, int full, float* out, int threads) {
  return affine<float>(x, given, images, dim, positions, slope, shift, full, out, threads);
}
REMIX_API int remix_affine_f64(const double* x, const double* given, int64_t images, int64_t dim, int64_t positions,
                               const double* slope, const double* shift, int full, double* out, int threads) {
  return affine<double>(x, given, images, dim, positions, slope, shift, full, out, threads);
}
