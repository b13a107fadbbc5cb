// Memory of the kernels: huge pages for large outputs, and scratch that is kept between calls. On fresh 4 KB pages the
// page faults of a large buffer cost several times the arithmetic done on it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace remix {

// Asks for huge pages where the system takes advice; for memory that has not been touched yet. Never fails.
void advise_huge(void* data, size_t bytes);

// 64-byte aligned scratch; `data` is null when there is no memory. The largest buffer up to `kept_bytes` is kept for
// the next call and shared by all threads of the process.
class Scratch {
 public:
  static constexpr size_t kept_bytes = size_t{160} << 20;
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data;

 private:
  size_t size_;
};

// Frees the kept scratch.
void release_scratch();

}  // namespace remix
