// Tiles: the layout in which every sweep runs. A tile holds one cache line of rows: tile[k * L + lane] is row `lane` at
// sorted position k, L = 64 / sizeof(T). Loading scatters whole lines into sorted order through a register transpose,
// so any order of the coordinates costs the same; storing gathers them back. Included once per instruction set.
namespace remix {
namespace REMIX_ISA {

#if REMIX_VECTOR_BYTES >= 32
// Transposes 8 rows of 8 floats: column j of `from` becomes the 8 floats at to + j * stride.
REMIX_INLINE void transpose8(const __m256 (&r)[8], __m256 (&c)[8]) {
  __m256 t0 = _mm256_unpacklo_ps(r[0], r[1]), t1 = _mm256_unpackhi_ps(r[0], r[1]);
  __m256 t2 = _mm256_unpacklo_ps(r[2], r[3]), t3 = _mm256_unpackhi_ps(r[2], r[3]);
  __m256 t4 = _mm256_unpacklo_ps(r[4], r[5]), t5 = _mm256_unpackhi_ps(r[4], r[5]);
  __m256 t6 = _mm256_unpacklo_ps(r[6], r[7]), t7 = _mm256_unpackhi_ps(r[6], r[7]);
  __m256 u0 = _mm256_shuffle_ps(t0, t2, 0x44), u1 = _mm256_shuffle_ps(t0, t2, 0xee);
  __m256 u2 = _mm256_shuffle_ps(t1, t3, 0x44), u3 = _mm256_shuffle_ps(t1, t3, 0xee);
  __m256 u4 = _mm256_shuffle_ps(t4, t6, 0x44), u5 = _mm256_shuffle_ps(t4, t6, 0xee);
  __m256 u6 = _mm256_shuffle_ps(t5, t7, 0x44), u7 = _mm256_shuffle_ps(t5, t7, 0xee);
  c[0] = _mm256_permute2f128_ps(u0, u4, 0x20), c[1] = _mm256_permute2f128_ps(u1, u5, 0x20);
  c[2] = _mm256_permute2f128_ps(u2, u6, 0x20), c[3] = _mm256_permute2f128_ps(u3, u7, 0x20);
  c[4] = _mm256_permute2f128_ps(u0, u4, 0x31), c[5] = _mm256_permute2f128_ps(u1, u5, 0x31);
  c[6] = _mm256_permute2f128_ps(u2, u6, 0x31), c[7] = _mm256_permute2f128_ps(u3, u7, 0x31);
}

// from: 16 row pointers at column i. Writes column i + j, minus centre[j], as the line to[j].
REMIX_INLINE void load_block(const float* const* from, int64_t i, const float* centre, float* const* to) {
  for (int left = 0; left < 16; left += 8) {
    for (int top = 0; top < 16; top += 8) {
      __m256 r[8], c[8];
      const __m256 mean = _mm256_loadu_ps(centre + left);
      for (int b = 0; b < 8; ++b) r[b] = _mm256_sub_ps(_mm256_loadu_ps(from[top + b] + i + left), mean);
      transpose8(r, c);
      for (int j = 0; j < 8; ++j) _mm256_store_ps(to[left + j] + top, c[j]);
    }
  }
}

// The inverse: lines from[j], plus centre[j], become columns i + j of the first `rows` rows. `stream` writes past the
// caches.
REMIX_INLINE void store_block(const float* const* from, const float* centre, float* const* to, int64_t i, int rows,
                              bool stream) {
  const __m256 left = _mm256_loadu_ps(centre), right = _mm256_loadu_ps(centre + 8);
  for (int top = 0; top < rows; top += 8) {
    __m256 a[8], b[8], r[8];
    for (int j = 0; j < 8; ++j) r[j] = _mm256_load_ps(from[j] + top);
    transpose8(r, a);
    for (int j = 0; j < 8; ++j) r[j] = _mm256_load_ps(from[8 + j] + top);
    transpose8(r, b);
    const int n = rows - top < 8 ? rows - top : 8;
    for (int row = 0; row < n; ++row) {
      float* target = to[top + row] + i;
      const __m256 first = _mm256_add_ps(a[row], left), second = _mm256_add_ps(b[row], right);
      if (stream) {
        _mm256_stream_ps(target, first), _mm256_stream_ps(target + 8, second);
      } else {
        _mm256_storeu_ps(target, first), _mm256_storeu_ps(target + 8, second);
      }
    }
  }
}

REMIX_INLINE void transpose4(const __m256d (&r)[4], __m256d (&c)[4]) {
  __m256d t0 = _mm256_unpacklo_pd(r[0], r[1]), t1 = _mm256_unpackhi_pd(r[0], r[1]);
  __m256d t2 = _mm256_unpacklo_pd(r[2], r[3]), t3 = _mm256_unpackhi_pd(r[2], r[3]);
  c[0] = _mm256_permute2f128_pd(t0, t2, 0x20), c[1] = _mm256_permute2f128_pd(t1, t3, 0x20);
  c[2] = _mm256_permute2f128_pd(t0, t2, 0x31), c[3] = _mm256_permute2f128_pd(t1, t3, 0x31);
}

REMIX_INLINE void load_block(const double* const* from, int64_t i, const double* centre, double* const* to) {
  for (int left = 0; left < 8; left += 4) {
    for (int top = 0; top < 8; top += 4) {
      __m256d r[4], c[4];
      const __m256d mean = _mm256_loadu_pd(centre + left);
      for (int b = 0; b < 4; ++b) r[b] = _mm256_sub_pd(_mm256_loadu_pd(from[top + b] + i + left), mean);
      transpose4(r, c);
      for (int j = 0; j < 4; ++j) _mm256_store_pd(to[left + j] + top, c[j]);
    }
  }
}

REMIX_INLINE void store_block(const double* const* from, const double* centre, double* const* to, int64_t i, int rows,
                              bool stream) {
  for (int left = 0; left < 8; left += 4) {
    const __m256d mean = _mm256_loadu_pd(centre + left);
    for (int top = 0; top < rows; top += 4) {
      __m256d r[4], c[4];
      for (int j = 0; j < 4; ++j) r[j] = _mm256_load_pd(from[left + j] + top);
      transpose4(r, c);
      const int n = rows - top < 4 ? rows - top : 4;
      for (int row = 0; row < n; ++row) {
        double* target = to[top + row] + i + left;
        const __m256d value = _mm256_add_pd(c[row], mean);
        stream ? _mm256_stream_pd(target, value) : _mm256_storeu_pd(target, value);
      }
    }
  }
}

REMIX_INLINE void fence() { _mm_sfence(); }
#else
template <class T>
REMIX_INLINE void load_block(const T* const* from, int64_t i, const T* centre, T* const* to) {
  constexpr int L = lanes<T>();
  for (int j = 0; j < L; ++j)
    for (int b = 0; b < L; ++b) to[j][b] = from[b][i + j] - centre[j];
}

template <class T>
REMIX_INLINE void store_block(const T* const* from, const T* centre, T* const* to, int64_t i, int rows, bool) {
  constexpr int L = lanes<T>();
  for (int b = 0; b < rows; ++b)
    for (int j = 0; j < L; ++j) to[b][i + j] = from[j][b] + centre[j];
}

REMIX_INLINE void fence() {}
#endif

// Scatters `rows` (1..L) rows of x, minus loc where given, into the tile; unused lanes become copies of the last row.
template <class T>
void load_tile(const T* x, int64_t stride, int rows, const T* loc, const int32_t* rank, int64_t size, T* tile) {
  constexpr int L = lanes<T>();
  const T* from[L];
  for (int b = 0; b < L; ++b) from[b] = x + (b < rows ? b : rows - 1) * stride;
  const T zeros[L] = {};
  int64_t i = 0;
  for (; i + L <= size; i += L) {
    T* to[L];
    for (int j = 0; j < L; ++j) to[j] = tile + static_cast<int64_t>(rank[i + j]) * L;
    if (i + 2 * L <= size)
      for (int j = 0; j < L; ++j) __builtin_prefetch(tile + static_cast<int64_t>(rank[i + L + j]) * L, 1);
    load_block(from, i, loc ? loc + i : zeros, to);
  }
  for (; i < size; ++i)
    for (int b = 0; b < L; ++b) tile[static_cast<int64_t>(rank[i]) * L + b] = from[b][i] - (loc ? loc[i] : T(0));
}

// Gathers the tile back into rows of `out`, plus loc where given.
template <class T>
void store_tile(const T* tile, const int32_t* rank, int64_t size, const T* loc, T* out, int64_t stride, int rows,
                bool stream) {
  constexpr int L = lanes<T>();
  const T zeros[L] = {};
  T* to[L];
  bool aligned = true;
  for (int b = 0; b < L; ++b) {
    to[b] = out + (b < rows ? b : rows - 1) * stride;
    aligned = aligned && reinterpret_cast<uintptr_t>(to[b]) % 32 == 0;
  }
  stream = stream && aligned;
  int64_t i = 0;
  for (; i + L <= size; i += L) {
    const T* from[L];
    for (int j = 0; j < L; ++j) from[j] = tile + static_cast<int64_t>(rank[i + j]) * L;
    if (i + 3 * L <= size)
      for (int j = 0; j < L; ++j) __builtin_prefetch(tile + static_cast<int64_t>(rank[i + 2 * L + j]) * L);
    store_block(from, loc ? loc + i : zeros, to, i, rows, stream);
  }
  for (; i < size; ++i)
    for (int b = 0; b < rows; ++b) to[b][i] = tile[static_cast<int64_t>(rank[i]) * L + b] + (loc ? loc[i] : T(0));
  if (stream) fence();
}

}  // namespace REMIX_ISA
}  // namespace remix
