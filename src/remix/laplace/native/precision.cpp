// The inverse of a Laplace covariance as a diagonal and an exponential kernel, its adjoint, and the KL divergence of two
// covariances with the same order. Sequential in D, a few dozen operations per coordinate: one pass each way.
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "isa.h"

namespace {

// One coordinate of the factorisation; P_0 = 1 and M_{D-1} = 1.
struct State {
  double P, S, G, gam, N, f, M;
  double keep;   // exp(-2 gap): squared decay from the coordinate before, 0 at the start
  double fresh;  // 1 - keep
};

void factorise(int64_t size, const double* d, const double* w, const double* gap, State* s) {
  for (int64_t k = 0; k < size; ++k) {
    State& at = s[k];
    at.keep = k ? std::exp(-2 * gap[k]) : 0.0;
    at.fresh = k ? -std::expm1(-2 * gap[k]) : 1.0;
    at.P = k ? at.keep * s[k - 1].gam * s[k - 1].P + at.fresh : 1.0;
    at.S = d[k] + w[k] * w[k] * at.P;
    at.G = w[k] * at.P / at.S;
    at.gam = d[k] / at.S;
  }
  for (int64_t k = size - 1; k >= 0; --k) {
    State& at = s[k];
    const bool last = k + 1 == size;
    at.f = last ? 0.0 : s[k + 1].keep * s[k + 1].N;
    at.N = at.gam * at.gam * at.f + w[k] * w[k] / at.S;
    // M = 1 - P gam f without the subtraction.
    at.M = last ? 1.0 : s[k + 1].gam * s[k + 1].M + s[k + 1].fresh * s[k + 1].N;
  }
}

}  // namespace

// In, sorted order (D): diag, weight, gap. Out (5, D): S; diag(Sigma^-1); left, right and decay gap of the kernel
// (Sigma^-1)_ij = -right_i left_j exp(-sum of decay gaps j+1..i) for i after j. Every function here returns 0, or 1 when
// there is no memory.
REMIX_API int remix_precision(int64_t size, const double* diag, const double* weight, const double* gap,
                              double* out) try {
  std::vector<State> states(size);
  factorise(size, diag, weight, gap, states.data());
  double *S = out, *inverse = out + size, *left = out + 2 * size, *right = out + 3 * size, *step = out + 4 * size;
  for (int64_t k = 0; k < size; ++k) {
    const State& at = states[k];
    S[k] = at.S;
    inverse[k] = 1 / at.S + at.G * at.G * at.f;
    left[k] = weight[k] * at.P / diag[k];
    right[k] = weight[k] / at.S * at.M;
    step[k] = k ? gap[k] + std::log1p(weight[k - 1] * weight[k - 1] * states[k - 1].P / diag[k - 1]) : 0.0;
  }
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

// The adjoint: cotangents (5, D) of the outputs above in, gradients (3, D) in diag, weight and gap out.
REMIX_API int remix_precision_adjoint(int64_t size, const double* diag, const double* weight, const double* gap,
                                      const double* bar, double* out) try {
  std::vector<State> s(size);
  factorise(size, diag, weight, gap, s.data());
  const double *S_bar = bar, *inverse_bar = bar + size, *left_bar = bar + 2 * size, *right_bar = bar + 3 * size,
               *step_bar = bar + 4 * size;
  double *d_bar = out, *w_bar = out + size, *gap_bar = out + 2 * size;
  struct Bar {
    double S, G, gam, keep, fresh;
  };
  std::vector<Bar> bars(size);
  double M_before = 0, f_before = 0;  // cotangents of M and f one coordinate down
  for (int64_t k = 0; k < size; ++k) {
    const State& at = s[k];
    const double w = weight[k], S = at.S;
    Bar& to = bars[k];
    const double N_bar = at.keep * f_before + at.fresh * M_before;
    const double M_bar = at.gam * M_before + right_bar[k] * w / S;
    const double f_bar = inverse_bar[k] * at.G * at.G + N_bar * at.gam * at.gam;
    to.keep = f_before * at.N;
    to.fresh = M_before * at.N;
    to.gam = M_before * at.M + 2 * N_bar * at.gam * at.f;
    to.G = 2 * inverse_bar[k] * at.G * at.f;
    to.S = S_bar[k] - (right_bar[k] * w * at.M + inverse_bar[k] + N_bar * w * w) / (S * S);
    w_bar[k] = (right_bar[k] * at.M + 2 * N_bar * w) / S;
    M_before = M_bar;
    f_before = f_bar;
  }
  double P_after = 0;  // cotangent of P one coordinate up
  for (int64_t k = size - 1; k >= 0; --k) {
    const State& at = s[k];
    const double d = diag[k], w = weight[k], S = at.S, P = at.P;
    Bar& to = bars[k];
    double P_bar = left_bar[k] * w / d;
    if (k + 1 < size) {
      const State& next = s[k + 1];
      bars[k + 1].keep += P_after * at.gam * P;
      bars[k + 1].fresh += P_after;
      gap_bar[k + 1] = 2 * next.keep * (bars[k + 1].fresh - bars[k + 1].keep) + step_bar[k + 1];
      to.gam += P_after * next.keep * P;
      P_bar += P_after * next.keep * at.gam;
    }
    // gap + log1p(w^2 P / d), whose inner derivative is gam / d.
    const double odds = k + 1 < size ? step_bar[k + 1] * at.gam / d : 0.0;
    P_bar += odds * w * w + to.G * w / S;
    const double S_total = to.S - (to.gam * d + to.G * w * P) / (S * S);
    w_bar[k] += left_bar[k] * P / d + 2 * odds * w * P + to.G * P / S + 2 * w * P * S_total;
    d_bar[k] = to.gam / S + S_total - (left_bar[k] / d + odds * w) * w * P / d;
    P_after = P_bar + S_total * w * w;
  }
  gap_bar[0] = 0;
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

// KL(N(0, Sigma0) || N(0, Sigma1)) when both have the same sorted order, and its gradients (6, D) in
// diag0, weight0, gap0, diag1, weight1, gap1 (skipped when `gradient` is null). Follows the error e = z0 - h of the
// second model's filter on data of the first: E = E[e^2], B = E[e z0]. Where the models agree every term is a sum of
// non-negative numbers, so the divergence of near models does not drown in cancellation.
REMIX_API int remix_kl_line(int64_t size, const double* d0, const double* w0, const double* gap0, const double* d1,
                            const double* w1, const double* gap1, double* gradient, double* value) try {
  struct Line {
    double phi0, phi1, fresh0, fresh1, P0, S0, P1, S1, G, gam, E, B, v;
  };
  std::vector<Line> lines(size);
  double total = 0;
  for (int64_t k = 0; k < size; ++k) {
    Line& at = lines[k];
    if (k == 0) {
      at = {0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0};
    } else {
      const Line& last = lines[k - 1];
      const double gam0 = d0[k - 1] / last.S0, difference = w0[k - 1] - w1[k - 1];
      at.phi0 = std::exp(-gap0[k]);
      at.phi1 = std::exp(-gap1[k]);
      at.fresh0 = -std::expm1(-2 * gap0[k]);
      at.fresh1 = -std::expm1(-2 * gap1[k]);
      at.P0 = at.phi0 * at.phi0 * gam0 * last.P0 + at.fresh0;
      at.P1 = at.phi1 * at.phi1 * last.gam * last.P1 + at.fresh1;
      const double drift = (at.phi0 - at.phi1) - at.phi1 * last.G * difference, hold = at.phi1 * last.gam;
      const double gain = at.phi1 * last.G;
      at.E = drift * drift + 2 * drift * hold * last.B + hold * hold * last.E + gain * gain * d0[k - 1] + at.fresh0;
      at.B = at.phi0 * (drift + hold * last.B) + at.fresh0;
    }
    at.S0 = d0[k] + w0[k] * w0[k] * at.P0;
    at.S1 = d1[k] + w1[k] * w1[k] * at.P1;
    at.G = w1[k] * at.P1 / at.S1;
    at.gam = d1[k] / at.S1;
    const double difference = w0[k] - w1[k];
    at.v = d0[k] + w1[k] * w1[k] * at.E + 2 * w1[k] * difference * at.B + difference * difference;
    total += (at.v - at.S1) / at.S1 - std::log(at.S0 / at.S1);
  }
  *value = 0.5 * total;
  if (!gradient) return 0;
  double *d0_bar = gradient, *w0_bar = d0_bar + size, *gap0_bar = w0_bar + size, *d1_bar = gap0_bar + size,
         *w1_bar = d1_bar + size, *gap1_bar = w1_bar + size;
  double E_next = 0, B_next = 0, P0_next = 0, P1_next = 0;  // cotangents one coordinate up
  for (int64_t k = size - 1; k >= 0; --k) {
    const Line& at = lines[k];
    const double difference = w0[k] - w1[k], weighted = 0.5 / at.S1;
    double d0_k = weighted, w1_k = weighted * 2 * (w1[k] * at.E + difference * at.B);
    double difference_bar = weighted * 2 * (w1[k] * at.B + difference);
    double E_bar = weighted * w1[k] * w1[k], B_bar = weighted * 2 * w1[k] * difference;
    double S1_bar = 0.5 * (1 - at.v / at.S1) / at.S1, G_bar = 0, gam_bar = 0, gam0_bar = 0, P0_bar = 0, P1_bar = 0;
    if (k + 1 < size) {
      const Line& next = lines[k + 1];
      const double gain = next.phi1 * at.G, drift = (next.phi0 - next.phi1) - gain * difference;
      const double hold = next.phi1 * at.gam, gam0 = d0[k] / at.S0;
      const double drift_bar = 2 * (drift + hold * at.B) * E_next + next.phi0 * B_next;
      const double hold_bar = 2 * (drift * at.B + hold * at.E) * E_next + next.phi0 * at.B * B_next;
      const double gain_bar = 2 * gain * d0[k] * E_next - drift_bar * difference;
      E_bar += hold * hold * E_next;
      B_bar += 2 * drift * hold * E_next + next.phi0 * hold * B_next;
      d0_k += gain * gain * E_next;
      difference_bar -= drift_bar * gain;
      G_bar = gain_bar * next.phi1;
      gam_bar = hold_bar * next.phi1 + P1_next * next.phi1 * next.phi1 * at.P1;
      gam0_bar = P0_next * next.phi0 * next.phi0 * at.P0;
      P1_bar = P1_next * next.phi1 * next.phi1 * at.gam;
      P0_bar = P0_next * next.phi0 * next.phi0 * gam0;
      const double phi0_bar = (drift + hold * at.B) * B_next + drift_bar + 2 * P0_next * next.phi0 * gam0 * at.P0;
      const double phi1_bar =
          gain_bar * at.G + hold_bar * at.gam - drift_bar + 2 * P1_next * next.phi1 * at.gam * at.P1;
      gap0_bar[k + 1] = -next.phi0 * phi0_bar + 2 * next.phi0 * next.phi0 * (E_next + B_next + P0_next);
      gap1_bar[k + 1] = -next.phi1 * phi1_bar + 2 * next.phi1 * next.phi1 * P1_next;
    }
    const double S0_bar = -(0.5 + gam0_bar * d0[k] / at.S0) / at.S0;
    S1_bar -= (G_bar * at.G + gam_bar * at.gam) / at.S1;
    w0_bar[k] = difference_bar + 2 * w0[k] * at.P0 * S0_bar;
    w1_bar[k] = w1_k - difference_bar + G_bar * at.P1 / at.S1 + 2 * w1[k] * at.P1 * S1_bar;
    d0_bar[k] = d0_k + gam0_bar / at.S0 + S0_bar;
    d1_bar[k] = gam_bar / at.S1 + S1_bar;
    P0_next = P0_bar + w0[k] * w0[k] * S0_bar;
    P1_next = P1_bar + G_bar * w1[k] / at.S1 + w1[k] * w1[k] * S1_bar;
    E_next = E_bar;
    B_next = B_bar;
  }
  gap0_bar[0] = gap1_bar[0] = 0;
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}
