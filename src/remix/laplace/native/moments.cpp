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
  void moment_sums(const T*, int64_t, int64_t, int64_t, const T*, bool, const T*, const T*, T*, void*, double*);   \
  template <class T>                                                                                               \
  void add_affine(const T*, const T*, int64_t, int64_t, int64_t, const T*, const T*, const T*, bool, void*, T*);   \
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
int moments(const T* x, int64_t images, int64_t dim, int64_t positions, const T* origin, int full, const T* scale,
            const T* offset, T* normal, T* out, int threads) {
  const int64_t group = images_per_task(dim, positions), tasks = (images + group - 1) / group;
  const int64_t numbers = dim + (full ? dim * dim : dim);
  const int64_t each = (REMIX_CALL(moment_scratch<T>, dim, full != 0) + 63) / 64 * 64;
  remix::Scratch scratch(size_t(each * threads) + size_t(tasks * numbers) * sizeof(double));
  if (!scratch.data) return 1;
  char* tiles = static_cast<char*>(scratch.data);
  double* sums = reinterpret_cast<double*>(tiles + each * threads);
  parallel(tasks, threads, [&](int64_t task, int worker) {
    const int64_t first = task * group, count = images - first < group ? images - first : group;
    const int64_t at = first * dim * positions;
    REMIX_CALL(moment_sums<T>, x + at, count, dim, positions, origin, full != 0, scale, offset,
               normal ? normal + at : nullptr, tiles + worker * each, sums + task * numbers);
  });
  for (int64_t task = 1; task < tasks; ++task)
    for (int64_t k = 0; k < numbers; ++k) sums[k] += sums[task * numbers + k];
  for (int64_t k = 0; k < numbers; ++k) out[k] = T(sums[k] / double(images * positions));
  return 0;
}

// Of a function with the given slopes in the moments: its gradient in a row y of x is slope y + shift.
template <class T>
void affine_of_slopes(const T* slopes, const T* origin, int64_t dim, double rows, bool full, T* slope, T* shift) {
  for (int64_t i = 0; i < dim; ++i) {
    double constant = slopes[i];
    if (full) {
      const T* of_products = slopes + dim;
      for (int64_t j = 0; j < dim; ++j) {
        const double both = double(of_products[i * dim + j]) + double(of_products[j * dim + i]);
        slope[i * dim + j] = T(both / rows);
        constant -= both * origin[j];
      }
    } else {
      const double both = 2 * double(slopes[dim + i]);
      slope[i] = T(both / rows);
      constant -= both * origin[i];
    }
    shift[i] = T(constant / rows);
  }
}

template <class T>
int gradient(const T* x, const T* given, int64_t images, int64_t dim, int64_t positions, const T* slopes,
             const T* origin, const T* scale, int full, T* out, int threads) {
  const int64_t group = images_per_task(dim, positions), tasks = (images + group - 1) / group;
  const int64_t each = (REMIX_CALL(moment_scratch<T>, dim, full != 0) + 63) / 64 * 64;
  const int64_t padded = (dim + 3) / 4 * 4, matrix = full ? padded * dim : dim;
  remix::Scratch scratch(size_t(each * threads) + size_t(matrix + padded) * sizeof(T));
  if (!scratch.data) return 1;
  char* tiles = static_cast<char*>(scratch.data);
  T *slope = reinterpret_cast<T*>(tiles + each * threads), *shift = slope + matrix;
  for (int64_t k = 0; k < matrix + padded; ++k) slope[k] = T(0);
  affine_of_slopes<T>(slopes, origin, dim, double(images * positions), full != 0, slope, shift);
  parallel(tasks, threads, [&](int64_t task, int worker) {
    const int64_t first = task * group, count = images - first < group ? images - first : group;
    const int64_t at = first * dim * positions;
    REMIX_CALL(add_affine<T>, x + at, given ? given + at : nullptr, count, dim, positions, slope, shift, scale,
               full != 0, tiles + worker * each, out + at);
  });
  return 0;
}

}  // namespace

// out: means over all rows y = x - origin of y (D), then of y y' (D, D) if full, else of y * y (D). normal, if not
// null, becomes scale x + offset. Returns 0, or 1 without memory.
#define REMIX_MOMENTS(T, suffix)                                                                                     \
  REMIX_API int remix_moments_##suffix(const T* x, int64_t images, int64_t dim, int64_t positions, const T* origin,  \
                                       int full, const T* scale, const T* offset, T* normal, T* out, int threads) {  \
    return moments<T>(x, images, dim, positions, origin, full, scale, offset, normal, out, threads);                 \
  }
REMIX_MOMENTS(float, f32)
REMIX_MOMENTS(double, f64)

// out = scale given + the gradient in x of a function of these moments, from its slopes in them, laid out like them.
// given may be null, and so may scale (D), for 1. Returns 0, or 1 without memory.
#define REMIX_MOMENT_GRADIENT(T, suffix)                                                                              \
  REMIX_API int remix_moment_gradient_##suffix(const T* x, const T* given, int64_t images, int64_t dim,              \
                                               int64_t positions, const T* slopes, const T* origin, const T* scale,  \
                                               int full, T* out, int threads) {                                      \
    return gradient<T>(x, given, images, dim, positions, slopes, origin, scale, full, out, threads);                 \
  }
REMIX_MOMENT_GRADIENT(float, f32)
REMIX_MOMENT_GRADIENT(double, f64)
