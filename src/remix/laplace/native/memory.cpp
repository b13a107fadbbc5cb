#include "memory.h"

#include <cstdint>
#include <cstdlib>
#include <list>
#include <mutex>
#include <unordered_map>

#include "isa.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace remix {

namespace {

constexpr size_t huge_page = size_t{2} << 20;

struct Block {
  void* data;
  size_t size;
};

struct Cache {
  std::mutex lock;
  std::unordered_map<void*, size_t> taken;
  std::list<Block> kept;  // the one given back last comes first
  size_t bytes = 0;       // of the kept blocks
};

Cache& cache() {
  static Cache* one = new Cache;  // never destroyed: blocks may be given back during static destruction
  return *one;
}

}  // namespace

void advise_huge(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t page = 4096, address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  if (bytes >= 2 * huge_page && end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

void* take_block(size_t bytes) {
  Cache& c = cache();
  std::lock_guard<std::mutex> guard(c.lock);
  auto best = c.kept.end();
  for (auto block = c.kept.begin(); block != c.kept.end(); ++block)
    if (block->size >= bytes && block->size <= bytes + bytes / 4 + huge_page &&
        (best == c.kept.end() || block->size < best->size))
      best = block;
  if (best != c.kept.end()) {
    const Block block = *best;
    c.kept.erase(best);
    c.bytes -= block.size;
    c.taken[block.data] = block.size;
    return block.data;
  }
  const size_t alignment = bytes >= huge_page ? huge_page : 64;
  const size_t size = (bytes / alignment + 1) * alignment;
  void* data = std::aligned_alloc(alignment, size);
  if (!data) return nullptr;
  advise_huge(data, size);
  c.taken[data] = size;
  return data;
}

void give_block(void* data) {
  if (!data) return;
  Cache& c = cache();
  std::lock_guard<std::mutex> guard(c.lock);
  const size_t size = c.taken[data];
  c.taken.erase(data);
  if (size > kept_bytes) {
    std::free(data);
    return;
  }
  c.kept.push_front({data, size});
  c.bytes += size;
  while (c.bytes > kept_bytes || c.kept.size() > 8) {  // what was used longest ago goes
    c.bytes -= c.kept.back().size;
    std::free(c.kept.back().data);
    c.kept.pop_back();
  }
}

void release_blocks() {
  Cache& c = cache();
  std::lock_guard<std::mutex> guard(c.lock);
  for (const Block& block : c.kept) std::free(block.data);
  c.kept.clear();
  c.bytes = 0;
}

}  // namespace remix

REMIX_API void* remix_take_block(int64_t bytes) { return remix::take_block(static_cast<size_t>(bytes)); }
REMIX_API void remix_give_block(void* data) { remix::give_block(data); }
REMIX_API void remix_release() { remix::release_blocks(); }
