// A cache line of values in registers, one value per row of a tile. Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

template <class T>
constexpr int lanes() {
  return 64 / sizeof(T);
}

// A struct of native vectors: compilers keep it in registers, which they do not do for a vector type wider than the
// machine's.
template <class T>
struct Line {
  typedef T vec __attribute__((vector_size(REMIX_VECTOR_BYTES), may_alias));
  static constexpr int parts = 64 / REMIX_VECTOR_BYTES;
  static constexpr int width = REMIX_VECTOR_BYTES / sizeof(T);
  vec part[parts];

  static REMIX_INLINE Line zero() {
    Line line;
    for (int i = 0; i < parts; ++i) line.part[i] = vec{};
    return line;
  }
  static REMIX_INLINE Line load(const T* from) {
    Line line;
    for (int i = 0; i < parts; ++i) line.part[i] = reinterpret_cast<const vec*>(from)[i];
    return line;
  }
  REMIX_INLINE void store(T* to) const {
    for (int i = 0; i < parts; ++i) reinterpret_cast<vec*>(to)[i] = part[i];
  }
  friend REMIX_INLINE Line operator+(Line a, const Line& b) {
    for (int i = 0; i < parts; ++i) a.part[i] += b.part[i];
    return a;
  }
  friend REMIX_INLINE Line operator-(Line a, const Line& b) {
    for (int i = 0; i < parts; ++i) a.part[i] -= b.part[i];
    return a;
  }
  friend REMIX_INLINE Line operator*(Line a, const Line& b) {
    for (int i = 0; i < parts; ++i) a.part[i] *= b.part[i];
    return a;
  }
  friend REMIX_INLINE Line operator*(T scalar, Line a) {
    for (int i = 0; i < parts; ++i) a.part[i] *= scalar;
    return a;
  }
  // Of all lanes, always in the same order.
  REMIX_INLINE T sum() const {
    vec all = part[0];
    for (int i = 1; i < parts; ++i) all += part[i];
    T lane[width];
    __builtin_memcpy(lane, &all, sizeof lane);
    for (int half = width / 2; half; half /= 2)
      for (int n = 0; n < half; ++n) lane[n] += lane[n + half];
    return lane[0];
  }
};

}  // namespace REMIX_ISA
}  // namespace remix
