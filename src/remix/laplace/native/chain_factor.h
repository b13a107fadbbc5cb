// The factorisation of a chain in sorted order, float64; the names of laplace.md. Arrays of `size`.
#pragma once
#include <cstdint>

namespace remix {

struct ChainFactor {
  int64_t size;
  double *diag, *weight, *phi, *P, *C, *S, *G, *gam, *N, *f;
};

}  // namespace remix
