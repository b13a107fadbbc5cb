// One source, several instruction sets. Every kernel lives in a header that is included once by each of
// isa_generic.cpp, isa_avx2.cpp and isa_avx512.cpp, inside the namespace REMIX_ISA of that translation unit; the C
// entry points pick one at run time with REMIX_CALL. Kernel headers must not use standard-library templates that could
// be emitted out of line with another unit's instructions: plain arrays, builtins and what is declared here.
#pragma once
#include <cstdint>

namespace remix {

enum class Isa { generic = 0, avx2 = 1, avx512 = 2 };

Isa isa();  // the best instruction set of this CPU, or what REMIX_ISA in the environment lowers it to (api.cpp)

}  // namespace remix

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define REMIX_X86 1
#define REMIX_CALL(function, ...)                                                      \
  (::remix::isa() == ::remix::Isa::avx512 ? ::remix::avx512::function(__VA_ARGS__)     \
   : ::remix::isa() == ::remix::Isa::avx2 ? ::remix::avx2::function(__VA_ARGS__)       \
                                          : ::remix::generic::function(__VA_ARGS__))
#else
#define REMIX_CALL(function, ...) (::remix::generic::function(__VA_ARGS__))
#endif

#define REMIX_API extern "C" __attribute__((visibility("default")))
#define REMIX_INLINE inline __attribute__((always_inline))
