// Linear operators on rows: up to two sweeps over tiles of rows, scattered into sorted order and gathered back.
// Included once per instruction set.

namespace remix {
namespace REMIX_ISA {

// x: `rows` rows of `size`, any row stride. `first`, `second` (may be null): (size, 4) coefficients, with directions.
// squares (rows), if given: sum of squares after the first sweep. out (rows, size), if given: the result.
// `scratch`: one tile (size * L) per worker, 64-byte aligned.
template <class T>
void filter_rows(const T* x, int64_t stride, int64_t rows, int64_t size, const T* loc, const int32_t* rank,
                 const T* first, bool first_down, const T* second, bool second_down, double* squares, T* out,
                 int64_t out_stride, T* scratch, int threads) {
  constexpr int L = lanes<T>();
  const bool stream = out && rows * size * static_cast<int64_t>(sizeof(T)) > (int64_t{8} << 20);
  // Tiles of nearly equal height: every tile costs the same, whatever its height.
  const int64_t tiles = (rows + L - 1) / L;
  parallel(tiles, threads, [&](int64_t t, int worker) {
    const int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
    const int height = static_cast<int>(end - begin);
    T* tile = scratch + worker * size * L;
    double sum[L] = {};
    load_tile(x + begin * stride, stride, height, loc, rank, size, tile);
    if (!out)
      sweep_tile<T, true, false>(tile, first, size, first_down, sum);
    else if (squares)
      sweep_tile<T, true, true>(tile, first, size, first_down, sum);
    else
      sweep_tile<T, false, true>(tile, first, size, first_down, sum);
    if (squares)
      for (int b = 0; b < height; ++b) squares[begin + b] = sum[b];
    if (out && second) sweep_tile<T, false, true>(tile, second, size, second_down, sum);
    if (out) store_tile<T>(tile, rank, size, nullptr, out + begin * out_stride, out_stride, height, stream);
  });
}

}  // namespace REMIX_ISA
}  // namespace remix
