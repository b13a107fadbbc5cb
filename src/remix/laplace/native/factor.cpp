// The factorisation: one pass up, one pass down, double precision, only sums and products of non-negative numbers.
#include "isa.h"

// All vectors (size), sorted; phi[0] = 0, q[0] = 1. Writes P, C, S, G, gam, N, f.
REMIX_API void remix_factorise(int64_t size, const double* diag, const double* weight, const double* phi, const double* q,
                               double* P, double* C, double* S, double* G, double* gam, double* N, double* f) {
  double p = 1, c = 0;
  for (int64_t k = 0; k < size; ++k) {
    const double w2 = weight[k] * weight[k];
    const double s = diag[k] + w2 * p;
    P[k] = p, C[k] = c, S[k] = s, G[k] = weight[k] * p / s, gam[k] = diag[k] / s;
    if (k + 1 < size) {
      const double phi2 = phi[k + 1] * phi[k + 1];
      c = phi2 * (diag[k] * c + w2 * p) / s;
      p = phi2 * gam[k] * p + q[k + 1];
    }
  }
  double carried = 0;
  for (int64_t k = size - 1; k >= 0; --k) {
    f[k] = carried;
    N[k] = gam[k] * gam[k] * carried + weight[k] * weight[k] / S[k];
    carried = phi[k] * phi[k] * N[k];
  }
}
