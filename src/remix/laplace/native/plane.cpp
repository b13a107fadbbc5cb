// Kernel sums in the plane: sums over ordered pairs of exp(-distance in the first axis - distance in the second), in
// O(D log D) by merge sort on the first axis with scans in the order of the second (docs/mathematics.md, "Sums in the plane").
// Every exponent is non-positive: nothing can overflow.
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "isa.h"
#include "threads.h"

namespace {

using remix::parallel;

constexpr int64_t kLeaf = 16;      // up to here all pairs directly: as many exponentials as the levels it replaces
constexpr int64_t kChunk = 16384;  // points one task sorts on its own, within its cache
constexpr double kFar = 745.2;     // exp(-kFar) is 0: beyond, points do not see each other

// A place on an axis as integer + fraction in [0, 1): differences stay accurate however long the axis is.
struct Position {
  double whole, part;
  double operator-(const Position& other) const { return (whole - other.whole) + (part - other.part); }
};

struct Key {
  int32_t rank;   // in the order of the second axis
  int32_t place;  // in the order of the first axis
};

// Every array is in the order of the first axis except `second`, which is in the order of the second.
struct Plane {
  int64_t size;
  std::unique_ptr<Position[]> first, second;
  std::unique_ptr<double[]> left;   // what a point sends to points after it
  std::unique_ptr<double[]> right;  // what a point sends to points before it
  std::unique_ptr<Key[]> keys, merged;
  std::unique_ptr<Key[]> active;    // the merged keys near enough to the boundary of their merge, in order
  std::unique_ptr<double[]> reach;  // exp(-distance to the boundary), by place
  std::unique_ptr<double[]> send;   // source times reach, by place
  std::unique_ptr<double[]> decay;  // exp(-step in the second axis) between active keys
  std::unique_ptr<double[]> sums[4];  // before/before, before/after, after/before, after/after (first/second axis)

  explicit Plane(int64_t points) : size(points) {
    for (auto* positions : {&first, &second}) positions->reset(new Position[size]);
    for (auto* list : {&keys, &merged, &active}) list->reset(new Key[size]);
    for (auto* values : {&left, &right, &reach, &send, &decay}) values->reset(new double[size]);
    for (auto& quadrant : sums) quadrant.reset(new double[size]());
  }

  void leaf(int64_t begin, int64_t end);
  int64_t prepare(int64_t begin, int64_t middle, int64_t end);
  void upwards(const Key* list, const double* steps, int64_t count, int64_t middle);
  void downwards(const Key* list, const double* steps, int64_t count, int64_t middle);
};

void place_on_axis(int64_t size, const double* gap, Position* out) {
  Position at{0, 0};
  for (int64_t k = 0; k < size; ++k) {
    // Gaps of kFar and more, infinite ones included, separate all the same.
    const double step = k == 0 ? 0.0 : (gap[k] < 1024 ? gap[k] : 1024.0);
    const double whole = std::floor(step);
    at.whole += whole;
    at.part += step - whole;
    if (at.part >= 1) {
      at.part -= 1;
      at.whole += 1;
    }
    out[k] = at;
  }
}

void Plane::leaf(int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; ++k) {  // insertion sort by rank: at most kLeaf keys
    const Key key = keys[k];
    int64_t to = k;
    for (; to > begin && keys[to - 1].rank > key.rank; --to) keys[to] = keys[to - 1];
    keys[to] = key;
  }
  for (int64_t low = begin; low < end; ++low)
    for (int64_t high = low + 1; high < end; ++high) {  // low before high in the second axis
      const int64_t i = keys[low].place, j = keys[high].place;
      const double along = i < j ? first[j] - first[i] : first[i] - first[j];
      const double distance = along + (second[keys[high].rank] - second[keys[low].rank]);
      if (distance > kFar) continue;
      const double value = std::exp(-distance);
      if (i < j) {
        sums[0][j] += value * left[i];
        sums[3][i] += value * right[j];
      } else {
        sums[1][i] += value * left[j];
        sums[2][j] += value * right[i];
      }
    }
}

// Merges the keys of [begin, middle) and [middle, end), and lists those near the boundary between the two (the last
// point of the first half) with what they send and how the second axis decays between them. Returns their number.
int64_t Plane::prepare(int64_t begin, int64_t middle, int64_t end) {
  const Position boundary = first[middle - 1];
  int64_t low = middle, high = middle;
  for (double distance; low > begin && (distance = boundary - first[low - 1]) < kFar;) {
    --low;
    reach[low] = std::exp(-distance);
    send[low] = left[low] * reach[low];
  }
  for (double distance; high < end && (distance = first[high] - boundary) < kFar; ++high) {
    reach[high] = std::exp(-distance);
    send[high] = right[high] * reach[high];
  }
  Key* const list = active.get() + begin;
  const uint64_t width = high - low;
  int64_t count = 0, a = begin, b = middle;
  for (int64_t out = begin; out < end; ++out) {
    const bool take = a == middle || (b < end && keys[b].rank < keys[a].rank);
    const Key key = keys[take ? b : a];
    a += !take;
    b += take;
    merged[out] = key;
    list[count] = key;
    count += static_cast<uint64_t>(key.place - low) < width;
  }
  for (int64_t k = 1; k < count; ++k) {
    const double step = second[list[k].rank] - second[list[k - 1].rank];
    decay[begin + k] = step < kFar ? std::exp(-step) : 0.0;
  }
  return count;
}

void Plane::upwards(const Key* list, const double* steps, int64_t count, int64_t middle) {
  double from_first = 0, from_second = 0;  // what the halves have sent so far, decayed to the present point
  double *const into_second = sums[0].get(), *const into_first = sums[2].get();
  for (int64_t k = 0; k < count; ++k) {
    const int64_t place = list[k].place;
    const bool in_first = place < middle;
    if (k) {
      from_first *= steps[k];
      from_second *= steps[k];
    }
    (in_first ? into_first : into_second)[place] += reach[place] * (in_first ? from_second : from_first);
    from_first += in_first ? send[place] : 0.0;
    from_second += in_first ? 0.0 : send[place];
  }
}

void Plane::downwards(const Key* list, const double* steps, int64_t count, int64_t middle) {
  double from_first = 0, from_second = 0;
  double *const into_second = sums[1].get(), *const into_first = sums[3].get();
  for (int64_t k = count - 1; k >= 0; --k) {
    const int64_t place = list[k].place;
    const bool in_first = place < middle;
    (in_first ? into_first : into_second)[place] += reach[place] * (in_first ? from_second : from_first);
    from_first += in_first ? send[place] : 0.0;
    from_second += in_first ? 0.0 : send[place];
    if (k) {
      from_first *= steps[k];
      from_second *= steps[k];
    }
  }
}

// Sorts one chunk by itself, all levels.
void chunk(Plane& plane, int64_t begin, int64_t end) {
  auto clip = [end](int64_t k) { return k < end ? k : end; };
  for (int64_t from = begin; from < end; from += kLeaf) plane.leaf(from, clip(from + kLeaf));
  for (int64_t width = kLeaf; width < kChunk && begin + width < end; width *= 2) {
    for (int64_t from = begin; from < end; from += 2 * width) {
      const int64_t middle = clip(from + width), to = clip(from + 2 * width);
      const int64_t count = plane.prepare(from, middle, to);
      plane.upwards(plane.active.get() + from, plane.decay.get() + from, count, middle);
      plane.downwards(plane.active.get() + from, plane.decay.get() + from, count, middle);
    }
    for (int64_t k = begin; k < end; ++k) plane.keys[k] = plane.merged[k];
  }
}

// One level of the sort above the chunks: blocks of `width` become blocks of 2 width. The two scans of a block write to
// different sums, so they may run side by side.
void level(Plane& plane, int64_t width, int threads) {
  const int64_t size = plane.size, blocks = (size + 2 * width - 1) / (2 * width);
  auto clip = [size](int64_t k) { return k < size ? k : size; };
  std::vector<int64_t> counts(blocks);
  parallel(blocks, threads, [&](int64_t block, int) {
    const int64_t begin = block * 2 * width;
    counts[block] = plane.prepare(begin, clip(begin + width), clip(begin + 2 * width));
  });
  parallel(2 * blocks, threads, [&](int64_t task, int) {
    const int64_t begin = task / 2 * 2 * width, middle = clip(begin + width), count = counts[task / 2];
    if (task % 2 == 0) plane.upwards(plane.active.get() + begin, plane.decay.get() + begin, count, middle);
    else plane.downwards(plane.active.get() + begin, plane.decay.get() + begin, count, middle);
  });
  plane.keys.swap(plane.merged);
}

}  // namespace

// The same as below when both axes have the same order, so that only rows 0 and 3 are not zero: gap (D) is the sum of
// both, sorted; order, left, right, sums as below. Rows 1 and 2 are left alone.
REMIX_API int remix_line_sums(int64_t size, const int64_t* order, const double* gap, const double* left,
                              const double* right, double* sums) {
  double state = 0;
  sums[order[0]] = 0;
  for (int64_t k = 1; k < size; ++k) {
    state = std::exp(-gap[k]) * (state + left[order[k - 1]]);
    sums[order[k]] = state;
  }
  double* const after = sums + 3 * size;
  state = after[order[size - 1]] = 0;
  for (int64_t k = size - 2; k >= 0; --k) {
    state = std::exp(-gap[k + 1]) * (state + right[order[k + 1]]);
    after[order[k]] = state;
  }
  return 0;
}

// order1, order2 (D): the point at each sorted place of the two axes; gap1, gap2 (D): distance to the place before,
// sorted, the first not used. left, right (D) and sums (4, D): in the original order of the points. Returns 0, or 1
// when there is no memory.
REMIX_API int remix_plane_sums(int64_t size, const int64_t* order1, const double* gap1, const int64_t* order2,
                               const double* gap2, const double* left, const double* right, double* sums,
                               int threads) try {
  Plane plane(size);
  place_on_axis(size, gap1, plane.first.get());
  place_on_axis(size, gap2, plane.second.get());
  std::vector<int32_t> rank(size);
  for (int64_t k = 0; k < size; ++k) rank[order2[k]] = static_cast<int32_t>(k);
  for (int64_t k = 0; k < size; ++k) {
    plane.keys[k] = {rank[order1[k]], static_cast<int32_t>(k)};
    plane.left[k] = left[order1[k]];
    plane.right[k] = right[order1[k]];
  }
  parallel((size + kChunk - 1) / kChunk, threads, [&](int64_t task, int) {
    const int64_t begin = task * kChunk;
    chunk(plane, begin, begin + kChunk < size ? begin + kChunk : size);
  });
  for (int64_t width = kChunk; width < size; width *= 2) level(plane, width, threads);
  for (int64_t k = 0; k < size; ++k)
    for (int quadrant = 0; quadrant < 4; ++quadrant) sums[quadrant * size + order1[k]] = plane.sums[quadrant][k];
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}
