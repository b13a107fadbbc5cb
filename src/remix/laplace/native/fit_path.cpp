// The greedy path: edges by decreasing strength, each taken if both ends still have a free side and no cycle closes.
#include <cmath>
#include <cstring>
#include <vector>

#include "isa.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace {

// Indices of the edges by decreasing |strength|; equal strengths stay in the given order. Radix sort, 11 bits a pass.
std::vector<uint32_t> by_strength(const float* strength, int64_t count) {
  std::vector<uint32_t> key(count), key_next(count), index(count), index_next(count);
  for (int64_t e = 0; e < count; ++e) {
    const float magnitude = std::fabs(strength[e]);
    std::memcpy(&key[e], &magnitude, sizeof(float));
    key[e] = 0x7fffffffu - key[e];
    index[e] = uint32_t(e);
  }
  for (int shift = 0; shift < 32; shift += 11) {
    int64_t place[2049] = {};
    for (uint32_t k : key) ++place[(k >> shift & 2047) + 1];
    for (int d = 0; d < 2048; ++d) place[d + 1] += place[d];
    for (int64_t e = 0; e < count; ++e) {
      const int64_t to = place[key[e] >> shift & 2047]++;
      key_next[to] = key[e];
      index_next[to] = index[e];
    }
    key.swap(key_next);
    index.swap(index_next);
  }
  return index;
}

class Paths {
 public:
  explicit Paths(int64_t size) : parent_(size), side_(2 * size, -1) {
    for (int64_t i = 0; i < size; ++i) parent_[i] = int32_t(i);
  }
  void join(int32_t a, int32_t b) {
    if (side_[2 * a + 1] >= 0 || side_[2 * b + 1] >= 0) return;
    const int32_t root_a = root(a), root_b = root(b);
    if (root_a == root_b) return;
    parent_[root_a] = root_b;
    side_[2 * a + (side_[2 * a] >= 0)] = b;
    side_[2 * b + (side_[2 * b] >= 0)] = a;
  }
  // The fragments one after the other, by their first end; returns their number.
  int64_t walk(int64_t* order) const {
    const int64_t size = int64_t(parent_.size());
    std::vector<bool> seen(size);
    int64_t fragments = 0, next = 0;
    for (int32_t start = 0; start < size; ++start) {
      if (seen[start] || side_[2 * start + 1] >= 0) continue;
      ++fragments;
      for (int32_t at = start, from = -1; at >= 0;) {
        seen[at] = true;
        order[next++] = at;
        const int32_t onward = side_[2 * at] == from ? side_[2 * at + 1] : side_[2 * at];
        from = at;
        at = onward;
      }
    }
    return fragments;
  }

 private:
  int32_t root(int32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  std::vector<int32_t> parent_;
  std::vector<int32_t> side_;  // up to two neighbours of each unit, -1 where free
};

}  // namespace

// Edges (count,) of units 0..size-1 -> order (size,); returns the number of fragments that were concatenated.
REMIX_API int64_t remix_fit_path(const int32_t* from, const int32_t* to, const float* strength, int64_t count,
                                 int64_t size, int64_t* order) {
  Paths paths(size);
  for (uint32_t e : by_strength(strength, count)) paths.join(from[e], to[e]);
  return paths.walk(order);
}

// Gives memory that was freed back to the system: the edges are as large as the data, and the C library would keep it.
REMIX_API void remix_fit_trim() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}
