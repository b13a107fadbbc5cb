// The factorisation of a chain in sorted order, float64; the names of docs/mathematics.md. Arrays of `size`.
#pragma once
#include <cstdint>

namespace remix {

struct ChainFactor {
  int64_t size;
  double *diag, *weight, *phi, *P, *C, *S, *G, *gam, *N, *f;
};

// The rows of the vectors (10, size) of a factorisation (factor.cpp), read only.
inline ChainFactor chain_factor(const double* vectors, int64_t size) {
  double* row = const_cast<double*>(vectors);
  return {size,           row,            row + size,     row + 2 * size, row + 3 * size, row + 4 * size,
          row + 5 * size, row + 6 * size, row + 7 * size, row + 8 * size, row + 9 * size};
}

}  // namespace remix
