// Kernel sums in the plane: sums over ordered pairs of exp(-distance in the first axis - distance in the second), in
// O(D log D) by merge sort on the first axis with scans in the order of the second (laplace.md, "Merging over tasks").
//
// A position on an axis is whole + part, two doubles: whole is an integer, part is small. Only differences are used, so
// they stay accurate however long the axis is, and every exponent is non-positive: nothing can overflow.
#include <cmath>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "isa.h"
#include "threads.h"

namespace {

using remix::parallel;

constexpr int64_t kLeaf = 16;      // up to here all pairs directly: as many exponentials as the levels it replaces
constexpr int64_t kChunk = 16384;  // points one task sorts on its own, within its cache

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
  const Position* first;
  const Position* second;
  const double* left;   // what a point sends to points after it
  const double* right;  // what a point sends to points before it
  std::vector<Key> keys, merged;
  std::vector<double> reach;   // exp(-distance to the boundary of the merge), by place
  std::vector<double> send;    // source times reach, by place
  std::vector<double> decay;   // exp(-step in the second axis), by position in the merged order
  double* sums[4];             // before/before, before/after, after/before, after/after (first axis/second axis)

  void leaf(int64_t begin, int64_t end);
  void spread(int64_t begin, int64_t middle, int64_t from, int64_t to);
  void merge(int64_t begin, int64_t middle, int64_t end);
  void steps(int64_t begin, int64_t from, int64_t to);
  void upwards(int64_t begin, int64_t middle, int64_t end);
  void downwards(int64_t begin, int64_t middle, int64_t end);
};

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
      const double value = std::exp(-(along + (second[keys[high].rank] - second[keys[low].rank])));
      if (i < j) {
        sums[0][j] += value * left[i];
        sums[3][i] += value * right[j];
      } else {
        sums[1][i] += value * left[j];
        sums[2][j] += value * right[i];
      }
    }
}

// Distances to the boundary, which is the last point of the first half.
void Plane::spread(int64_t begin, int64_t middle, int64_t from, int64_t to) {
  (void)begin;
  const Position boundary = first[middle - 1];
  const int64_t split = middle < from ? from : (middle > to ? to : middle);
  for (int64_t k = from; k < split; ++k) {
    reach[k] = std::exp(-(boundary - first[k]));
    send[k] = left[k] * reach[k];
  }
  for (int64_t k = split; k < to; ++k) {
    reach[k] = std::exp(-(first[k] - boundary));
    send[k] = right[k] * reach[k];
  }
}

void Plane::merge(int64_t begin, int64_t middle, int64_t end) {
  int64_t a = begin, b = middle, out = begin;
  while (a < middle && b < end) {
    const bool take = keys[b].rank < keys[a].rank;
    merged[out++] = keys[take ? b : a];
    a += !take;
    b += take;
  }
  while (a < middle) merged[out++] = keys[a++];
  while (b < end) merged[out++] = keys[b++];
}

void Plane::steps(int64_t begin, int64_t from, int64_t to) {
  for (int64_t k = from; k < to; ++k)
    decay[k] = k == begin ? 0.0 : std::exp(-(second[merged[k].rank] - second[merged[k - 1].rank]));
}

void Plane::upwards(int64_t begin, int64_t middle, int64_t end) {
  double from_first = 0, from_second = 0;  // what the halves have sent so far, decayed to the present point
  double* const into_second = sums[0];
  double* const into_first = sums[2];
  for (int64_t k = begin; k < end; ++k) {
    const int64_t place = merged[k].place;
    const double sent = send[place], near = reach[place];
    from_first *= decay[k];
    from_second *= decay[k];
    const bool in_first = place < middle;
    double* const target = in_first ? into_first : into_second;
    target[place] += near * (in_first ? from_second : from_first);
    from_first += in_first ? sent : 0.0;
    from_second += in_first ? 0.0 : sent;
  }
}

void Plane::downwards(int64_t begin, int64_t middle, int64_t end) {
  double from_first = 0, from_second = 0;
  double* const into_second = sums[1];
  double* const into_first = sums[3];
  for (int64_t k = end - 1; k >= begin; --k) {
    const int64_t place = merged[k].place;
    const double sent = send[place], near = reach[place];
    const bool in_first = place < middle;
    double* const target = in_first ? into_first : into_second;
    target[place] += near * (in_first ? from_second : from_first);
    from_first = (from_first + (in_first ? sent : 0.0)) * decay[k];
    from_second = (from_second + (in_first ? 0.0 : sent)) * decay[k];
  }
}

// One level of the sort over [from, to): blocks of `width` become blocks of 2 width.
void level(Plane& plane, int64_t width, int threads) {
  const int64_t size = plane.size, blocks = (size + 2 * width - 1) / (2 * width);
  const int64_t pieces = (size + kChunk - 1) / kChunk;
  auto clip = [size](int64_t k) { return k < size ? k : size; };
  auto bounds = [&](int64_t block) {
    const int64_t begin = block * 2 * width;
    return std::pair<int64_t, int64_t>{begin, clip(begin + width)};
  };
  // A piece never straddles two blocks: kChunk divides 2 * width.
  parallel(blocks + pieces, threads, [&](int64_t task, int) {
    if (task < blocks) {
      const auto [begin, middle] = bounds(task);
      plane.merge(begin, middle, clip(begin + 2 * width));
    } else {
      const int64_t from = (task - blocks) * kChunk;
      const auto [begin, middle] = bounds(from / (2 * width));
      if (middle < size) plane.spread(begin, middle, from, clip(from + kChunk));
    }
  });
  parallel(pieces, threads, [&](int64_t task, int) {
    const int64_t from = task * kChunk;
    plane.steps(from / (2 * width) * 2 * width, from, clip(from + kChunk));
  });
  parallel(2 * blocks, threads, [&](int64_t task, int) {
    const auto [begin, middle] = bounds(task / 2);
    if (middle == size) return;  // a block without a second half
    if (task % 2 == 0) plane.upwards(begin, middle, clip(begin + 2 * width));
    else plane.downwards(begin, middle, clip(begin + 2 * width));
  });
  plane.keys.swap(plane.merged);
}

// Sorts one chunk by itself, all levels.
void chunk(Plane& plane, int64_t begin, int64_t end) {
  for (int64_t from = begin; from < end; from += kLeaf) plane.leaf(from, from + kLeaf < end ? from + kLeaf : end);
  for (int64_t width = kLeaf; width < kChunk && begin + width < end; width *= 2) {
    for (int64_t from = begin; from < end; from += 2 * width) {
      const int64_t middle = from + width < end ? from + width : end;
      const int64_t to = from + 2 * width < end ? from + 2 * width : end;
      plane.merge(from, middle, to);
      if (middle == to) continue;
      plane.spread(from, middle, from, to);
      plane.steps(from, from, to);
      plane.upwards(from, middle, to);
      plane.downwards(from, middle, to);
    }
    for (int64_t k = begin; k < end; ++k) plane.keys[k] = plane.merged[k];
  }
}

}  // namespace

// The same when both axes have the same order, so that only rows 0 and 3 are not zero: decay (D) is exp(-gap), left and
// right (D) as below, all in that order. before, after (D): rows 0 and 3.
REMIX_API void remix_line_sums(int64_t size, const double* decay, const double* left, const double* right,
                               double* before, double* after) {
  double state = 0;
  for (int64_t k = 0; k < size; ++k) {
    state = k ? decay[k] * (state + left[k - 1]) : 0.0;
    before[k] = state;
  }
  for (int64_t k = size - 1; k >= 0; --k) {
    state = k + 1 < size ? decay[k + 1] * (state + right[k + 1]) : 0.0;
    after[k] = state;
  }
}

// rank (D): place in the second order of the points in the first order. first, second (D, 2): whole and part of the
// positions, each in its own order, ascending. left, right (D) and sums (4, D): in the first order. sums must be zero.
// Returns 0, or 1 when there is no memory.
REMIX_API int remix_plane_sums(int64_t size, const int32_t* rank, const double* first, const double* second,
                               const double* left, const double* right, double* sums, int threads) try {
  Plane plane;
  plane.size = size;
  plane.first = reinterpret_cast<const Position*>(first);
  plane.second = reinterpret_cast<const Position*>(second);
  plane.left = left;
  plane.right = right;
  plane.keys.resize(size);
  plane.merged.resize(size);
  plane.reach.resize(size);
  plane.send.resize(size);
  plane.decay.resize(size);
  for (int quadrant = 0; quadrant < 4; ++quadrant) plane.sums[quadrant] = sums + quadrant * size;
  for (int64_t k = 0; k < size; ++k) plane.keys[k] = {rank[k], static_cast<int32_t>(k)};
  parallel((size + kChunk - 1) / kChunk, threads, [&](int64_t task, int) {
    const int64_t begin = task * kChunk;
    chunk(plane, begin, begin + kChunk < size ? begin + kChunk : size);
  });
  for (int64_t width = kChunk; width < size; width *= 2) level(plane, width, threads);
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}
