// Memory of the kernels: large blocks on huge pages, kept for the next call. On fresh 4 KB pages the page faults of a
// large buffer cost several times the arithmetic done on it.
#pragma once
#include <cstddef>

namespace remix {

// Asks for huge pages where the system takes advice; for memory that has not been touched yet. Never fails.
void advise_huge(void* data, size_t bytes);

constexpr size_t kept_bytes = size_t{384} << 20;  // freed blocks kept at most, all together

// A block of at least `bytes`, 64-byte aligned, from the kept ones if one fits; null when there is no memory.
void* take_block(size_t bytes);

// Gives back what take_block gave.
void give_block(void* data);

// Frees the kept blocks.
void release_blocks();

// A block for the length of a scope; `data` is null when there is no memory.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : data(take_block(bytes)) {}
  ~Scratch() { give_block(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* const data;
};

}  // namespace remix
