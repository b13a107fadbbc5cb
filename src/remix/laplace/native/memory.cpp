#include "memory.h"

#include <cstdlib>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace remix {

namespace {

constexpr size_t huge_page = size_t{2} << 20;

struct Kept {
  std::mutex lock;
  void* data = nullptr;
  size_t size = 0;
};

Kept& kept() {
  static Kept* one = new Kept;  // never destroyed: threads may outlive static destruction
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

Scratch::Scratch(size_t bytes) : data(nullptr), size_(bytes) {
  {
    std::lock_guard<std::mutex> guard(kept().lock);
    if (kept().data && kept().size >= bytes) {
      data = kept().data, size_ = kept().size;
      kept().data = nullptr, kept().size = 0;
      return;
    }
  }
  const size_t alignment = bytes >= huge_page ? huge_page : 64;
  size_ = (bytes + alignment - 1) / alignment * alignment;
  data = std::aligned_alloc(alignment, size_ ? size_ : alignment);
  if (data) advise_huge(data, size_);
}

Scratch::~Scratch() {
  void* spare = data;
  if (data && size_ <= kept_bytes) {
    std::lock_guard<std::mutex> guard(kept().lock);
    if (size_ > kept().size) {
      spare = kept().data;
      kept().data = data, kept().size = size_;
    }
  }
  std::free(spare);
}

void release_scratch() {
  std::lock_guard<std::mutex> guard(kept().lock);
  std::free(kept().data);
  kept().data = nullptr, kept().size = 0;
}

}  // namespace remix
