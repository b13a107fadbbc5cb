#include "isa.h"
#if REMIX_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define REMIX_VECTOR_BYTES 32
#define REMIX_ISA avx2
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
