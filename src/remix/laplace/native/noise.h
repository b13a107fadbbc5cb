// Standard normal noise straight into tiles: one xoshiro generator per row, so that a draw depends on the seed and the
// number of its row and on nothing else, and the Box-Muller transform on whole lines. Plain loops over lanes, written
// so that compilers vectorise them. Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

template <class T>
struct Bits;
template <>
struct Bits<float> {
  using word = uint32_t;
  using integer = int32_t;
  static constexpr int size = 32, mantissa = 23, bias = 127, scramble = 7, shift = 9, rotate = 11;  // xoshiro128++
  static constexpr int log_terms = 5, trig_terms = 5;
  static constexpr int kept = 31;  // random bits in a uniform number
  static REMIX_INLINE float real(integer whole) { return static_cast<float>(whole); }
};
template <>
struct Bits<double> {
  using word = uint64_t;
  using integer = int64_t;
  static constexpr int size = 64, mantissa = 52, bias = 1023, scramble = 23, shift = 17, rotate = 45;  // xoshiro256++
  static constexpr int log_terms = 12, trig_terms = 9;
  static constexpr int kept = 51;
  // Below 2^51: through the mantissa, since most instruction sets cannot convert 64-bit integers.
  static REMIX_INLINE double real(integer whole) {
    return __builtin_bit_cast(double, whole + 0x4338000000000000) - 6755399441055744.0;
  }
};

REMIX_INLINE uint64_t split_mix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <class T>
struct Noise {
  using word = typename Bits<T>::word;
  static constexpr int L = lanes<T>();
  alignas(64) word s[4][L];

  // Lane b draws the noise of row `row + b`.
  Noise(uint64_t seed, int64_t row) {
    for (int b = 0; b < L; ++b) {
      uint64_t state = seed + 0xd1342543de82ef95u * static_cast<uint64_t>(row + b + 1);
      split_mix(state);
      for (int i = 0; i < 4; ++i) s[i][b] = static_cast<word>(split_mix(state) >> (64 - Bits<T>::size));
      s[0][b] |= 1;  // never all zero
    }
  }

  REMIX_INLINE void next(word (&out)[L]) {
    constexpr int size = Bits<T>::size, scramble = Bits<T>::scramble, rotate = Bits<T>::rotate;
    for (int n = 0; n < L; ++n) {
      const word sum = s[0][n] + s[3][n];
      out[n] = ((sum << scramble) | (sum >> (size - scramble))) + s[0][n];
      const word t = s[1][n] << Bits<T>::shift;
      s[2][n] ^= s[0][n], s[3][n] ^= s[1][n], s[1][n] ^= s[2][n], s[0][n] ^= s[3][n];
      s[2][n] ^= t;
      s[3][n] = (s[3][n] << rotate) | (s[3][n] >> (size - rotate));
    }
  }

  // Two lines of independent standard normals.
  REMIX_INLINE void pair(T* first, T* second) {
    using integer = typename Bits<T>::integer;
    constexpr int mantissa = Bits<T>::mantissa, size = Bits<T>::size, kept = Bits<T>::kept;
    constexpr T scale = T(1) / static_cast<T>(word{1} << kept);
    alignas(64) word u[L], angle[L];
    next(u), next(angle);
    for (int n = 0; n < L; ++n) {
      // radius = sqrt(-2 log v), v uniform in (0, 1]: log through the exponent and the series of atanh.
      const T v = (Bits<T>::real(static_cast<integer>(u[n] >> (size - kept))) + T(.5)) * scale;
      const word bits = __builtin_bit_cast(word, v);
      integer exponent = static_cast<integer>(bits >> mantissa) - Bits<T>::bias;
      T m = __builtin_bit_cast(T, (bits & ((word{1} << mantissa) - 1)) | (static_cast<word>(Bits<T>::bias) << mantissa));
      const bool large = m > T(1.41421356237309505);
      m = large ? m / 2 : m;
      exponent += large ? 1 : 0;
      const T z = (m - 1) / (m + 1), z2 = z * z;
      T series = 0;
      for (int i = Bits<T>::log_terms - 1; i >= 0; --i) series = series * z2 + T(1) / T(2 * i + 1);
      const T log_v = Bits<T>::real(exponent) * T(0.693147180559945309417) + 2 * z * series;
      const T square = -2 * log_v, radius = __builtin_sqrt(square > 0 ? square : T(0));
      // angle = (quadrant + fraction) pi / 2, fraction in [-1/2, 1/2): short series for sine and cosine.
      const word quadrant = angle[n] >> (size - 2);
      const T fraction = Bits<T>::real(static_cast<integer>(angle[n] << 2) >> (size - kept)) * scale;
      const T x = fraction * T(1.57079632679489661923), x2 = x * x;
      T sine = 0, cosine = 0;
      for (int i = Bits<T>::trig_terms - 1; i >= 0; --i) {
        sine = T(1) - sine * x2 * (T(1) / T((2 * i + 2) * (2 * i + 3)));
        cosine = T(1) - cosine * x2 * (T(1) / T((2 * i + 1) * (2 * i + 2)));
      }
      sine *= x;
      const T p = quadrant & 1 ? sine : cosine, q = quadrant & 1 ? cosine : sine;
      first[n] = radius * (quadrant == 1 || quadrant == 2 ? -p : p);
      second[n] = radius * (quadrant >= 2 ? -q : q);
    }
  }
};

// Fills a tile with the noise of rows row..row + L - 1.
template <class T>
void noise_tile(uint64_t seed, int64_t row, int64_t size, T* tile) {
  constexpr int L = lanes<T>();
  Noise<T> noise(seed, row);
  int64_t k = 0;
  for (; k + 2 <= size; k += 2) noise.pair(tile + k * L, tile + (k + 1) * L);
  if (k < size) {
    alignas(64) T spare[L];
    noise.pair(tile + k * L, spare);
  }
}

// out (rows, size) = loc + sweep(noise); loc and coef may be null. `scratch`: one tile per worker.
template <class T>
void sample_rows(uint64_t seed, int64_t rows, int64_t size, const int32_t* rank, const T* coef, const T* loc, T* out,
                 T* scratch, int workers) {
  constexpr int L = lanes<T>();
  const bool stream = rows * size * static_cast<int64_t>(sizeof(T)) > (int64_t{8} << 20);
  const int64_t tiles = (rows + L - 1) / L;
  parallel(tiles, workers, [&](int64_t t, int worker) {
    const int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
    T* tile = scratch + worker * size * L;
    noise_tile(seed, begin, size, tile);
    if (coef) sweep_tile<T, false, true>(tile, coef, size, false, nullptr);
    store_tile(tile, rank, size, loc, out + begin * size, size, static_cast<int>(end - begin), stream);
  });
}

}  // namespace REMIX_ISA
}  // namespace remix
