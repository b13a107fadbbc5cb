// Remove-and-reinsert sweep: every unit in turn is taken out of the chain and put back where the likelihood of the whole
// chain is highest. Exact: p(x) = p(x without i) p(x_i | rest), and x_i | rest ~ N(r zhat(t), 1 - r^2 c(t)) for a unit
// with loading r attached at location t, zhat(t) and c(t) being the smoothed state there and its variance.
#include <algorithm>
#include <cmath>
#include <vector>

#include "chain_factor.h"
#include "isa.h"

#define REMIX_REINSERT_DECLARATIONS(space)                                                                         \
  namespace remix {                                                                                                \
  namespace space {                                                                                                \
  namespace chain {                                                                                                \
  template <class T>                                                                                               \
  void smoother_sums(const T*, int64_t, const int64_t*, const T*, const ChainFactor*, double, void*, void*, T*,    \
                     double*);                                                                                     \
  }                                                                                                                \
  }                                                                                                                \
  }
REMIX_REINSERT_DECLARATIONS(generic)
#if REMIX_X86
REMIX_REINSERT_DECLARATIONS(avx2)
REMIX_REINSERT_DECLARATIONS(avx512)
#endif

namespace {

using remix::ChainFactor;

constexpr double kLargestPhi = .999;

// A place for the removed unit: before position k of the reduced chain, phi_above the decay from it to position k.
struct Place {
  int64_t k;
  double phi_above, loading, score;
};

// Moments of the removed unit x with the smoothed state z at one location, the variance c of z, and the largest loading
// that the unit may have.
struct Meeting {
  double xx, xz, zz, variance, largest;

  // Negative conditional log-likelihood per row.
  double score(double loading) const {
    const double left = 1 - loading * loading * variance;
    return .5 * (std::log(left) + (xx - 2 * loading * xz + loading * loading * zz) / left);
  }
  // The best of a few loadings: the optimum if the model were true, and shrunk versions of it.
  void improve(Place& best, int64_t k, double phi_above) const {
    if (!(variance > 1e-12)) return;
    const double full = std::clamp(xz / variance, -largest, largest);
    for (double part : {1., .9, .75}) {
      const double value = score(part * full);
      if (value < best.score) best = {k, phi_above, part * full, value};
    }
  }
};

template <class T>
class Reinsertion {
 public:
  Reinsertion(const T* u, int64_t stride, int64_t rows, int64_t size, const double* largest, int64_t* order,
              double* loading, double* phi)
      : u_(u), stride_(stride), rows_(double(rows)), size_(size), largest_(largest), order_(order), loading_(loading), phi_(phi),
        nodes_(size), fields_(10 * size), steps_(10 * size), sums_(5 * size), kept_(8 * (64 / sizeof(T)) * size + 16) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(kept_.data());
    aligned_ = reinterpret_cast<T*>((start + 63) / 64 * 64);
  }

  // True if the unit at position p moved; gain is added to *total.
  bool visit(int64_t p, double threshold, double* total) {
    const int64_t reduced = size_ - 1;
    const ChainFactor chain = without(p);
    const double end = p == reduced ? phi_[p] : 1;
    const T* x = u_ + order_[p] * stride_;
    REMIX_CALL(chain::smoother_sums<T>, u_, stride_, nodes_.data(), x, &chain, end, steps_.data(), steps_.data() + 4 * size_,
               aligned_, sums_.data());
    double xx = 0;
    for (int64_t n = 0; n < stride_; ++n) xx += double(x[n]) * double(x[n]);
    xx /= rows_;
    const double largest = largest_[order_[p]];
    const double present = meet(chain, end, p, p < reduced ? phi_[p + 1] : 1, xx, largest).score(loading_[p]);
    Place best{-1, 1, 0, present};
    for (int64_t k = 0; k <= reduced; ++k) {
      meet(chain, end, k, 1, xx, largest).improve(best, k, 1);
      if (k == reduced) break;
      for (double share : {.25, .5, .75}) {
        const double phi_above = k ? std::pow(chain.phi[k], share) : 1 - .4 * share;
        if (phi_above < 1e-3) break;
        meet(chain, end, k, phi_above, xx, largest).improve(best, k, phi_above);
      }
    }
    if (best.k < 0 || present - best.score < threshold) return false;
    *total += present - best.score;
    move(p, best, chain);
    return true;
  }

 private:
  ChainFactor without(int64_t p) {
    double* field = fields_.data();
    const auto next = [&] { return (field += size_) - size_; };
    ChainFactor c{size_ - 1, next(), next(), next(), next(), next(), next(), next(), next(), next(), next()};
    for (int64_t k = 0, from = 0; from < size_; ++from) {
      if (from == p) continue;
      nodes_[k] = order_[from];
      c.weight[k] = loading_[from];
      c.diag[k] = (1 - loading_[from]) * (1 + loading_[from]);
      c.phi[k] = from == p + 1 ? phi_[p] * phi_[from] : phi_[from];
      ++k;
    }
    c.phi[0] = 0;
    return c;
  }

  // zhat(t) = h_k / phi_above + P(t) phi_above rho_k, Var = C(t) + (P(t) phi_above)^2 N_k, C(t) = C_k / phi_above^2.
  Meeting meet(const ChainFactor& chain, double end, int64_t k, double phi_above, double xx,
               double largest) const {
    double C, N = 0;
    if (k < chain.size) {
      C = chain.C[k], N = chain.N[k];
    } else {
      const int64_t last = chain.size - 1;
      const double w = chain.weight[last];
      C = end * end * (chain.diag[last] * chain.C[last] + w * w * chain.P[last]) / chain.S[last];
    }
    C = std::min(1., C / (phi_above * phi_above));
    const double alpha = 1 / phi_above, beta = (1 - C) * phi_above;
    const double* s = sums_.data() + 5 * k;
    return {xx, (alpha * s[0] + beta * s[1]) / rows_,
            (alpha * alpha * s[2] + 2 * alpha * beta * s[3] + beta * beta * s[4]) / rows_, C + beta * beta * N, largest};
  }

  void move(int64_t p, const Place& place, const ChainFactor& chain) {
    const int64_t unit = order_[p], reduced = size_ - 1;
    for (int64_t k = 0; k < reduced; ++k) {
      const int64_t to = k < place.k ? k : k + 1;
      order_[to] = nodes_[k];
      loading_[to] = chain.weight[k];
      phi_[to] = chain.phi[k];
    }
    order_[place.k] = unit;
    loading_[place.k] = place.loading;
    const double above = std::min(place.phi_above, kLargestPhi);
    if (place.k < reduced) {
      phi_[place.k] = place.k ? std::min(chain.phi[place.k] / place.phi_above, kLargestPhi) : 0;
      phi_[place.k + 1] = above;
    } else {
      phi_[place.k] = kLargestPhi;
    }
    phi_[0] = 0;
  }

  const T* u_;
  int64_t stride_;
  double rows_;
  int64_t size_;
  const double* largest_;
  int64_t* order_;
  double *loading_, *phi_;
  std::vector<int64_t> nodes_;
  std::vector<double> fields_;
  std::vector<T> steps_;
  std::vector<double> sums_;
  std::vector<T> kept_;
  T* aligned_;
};

template <class T>
int64_t sweep(const T* u, int64_t stride, int64_t rows, int64_t size, const int64_t* visits,
              const double* largest, double threshold, int64_t* order, double* loading, double* phi, double* gain) {
  if (size < 3) return 0;
  Reinsertion<T> work(u, stride, rows, size, largest, order, loading, phi);
  int64_t moves = 0;
  *gain = 0;
  for (int64_t v = 0; v < size; ++v) {
    const int64_t p = std::find(order, order + size, visits[v]) - order;
    moves += work.visit(p, threshold, gain);
  }
  return moves;
}

}  // namespace

// u (units, stride) feature-major; order, loading, phi (size,) are changed in place; visits: the units in the order of
// their turn; largest (units,): the largest |loading| of each unit. Returns the number of moves; *gain is the sum of the likelihood gains, nats per row.
#define REMIX_REINSERT_API(T, suffix)                                                                                \
  REMIX_API int64_t remix_fit_reinsert_##suffix(const T* u, int64_t stride, int64_t rows, int64_t size,              \
                                                const int64_t* visits, const double* largest, double threshold,      \
                                                int64_t* order, double* loading, double* phi, double* gain) {        \
    return sweep<T>(u, stride, rows, size, visits, largest, threshold, order, loading, phi, gain);                            \
  }
REMIX_REINSERT_API(float, f32)
REMIX_REINSERT_API(double, f64)
