"""The native path: C++ kernels behind a C ABI, loaded with ctypes."""

from __future__ import annotations

import ctypes
import os
import weakref
from ctypes import c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from remix.laplace.factor import Sweep

__all__ = ["ABI", "NativeLibrary", "find_library", "find_openmp"]

ABI = 2  # raised whenever a function is added or changes: an old library steps aside instead of failing
LARGE = 1 << 22  # bytes from which results live in reusable blocks
ISA_NAMES = ("generic", "avx2", "avx512")

_P, _I, _D, _T = c_void_p, c_int64, c_double, c_int
# name -> (result, arguments)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "remix_take_block": (_P, [_I]),
    "remix_give_block": (None, [_P]),
    "remix_release": (None, []),
    "remix_lend_threads": (None, [_P]),
    "remix_argsort": (_T, [_I, _P, _P]),
    "remix_factorise": (_T, [_I, *[_P] * 6]),
    "remix_plane_sums": (_T, [_I, *[_P] * 7, _T]),
    "remix_line_sums": (_T, [_I, *[_P] * 5]),
    "remix_precision": (_T, [_I, *[_P] * 4]),
    "remix_precision_adjoint": (_T, [_I, *[_P] * 5]),
    "remix_kl_line": (_T, [_I, *[_P] * 8]),
    "remix_fit_trim": (None, []),
    "remix_fit_path": (_I, [_P, _P, _P, _I, _I, _P]),
}
# The same for functions that exist for float32 and float64, with the ends of their names.
_TYPED: dict[tuple[str, str], dict[str, tuple[Any, list[Any]]]] = {
    ("float", "double"): {
        "remix_filter_": (_T, [_P, _I, _I, _I, _P, _P, _P, _T, _P, _T, _P, _P, _I, _T]),
        "remix_gradients_": (_T, [_P, _I, _I, _I, *[_P] * 6, _T]),
        "remix_sample_": (_T, [c_uint64, _I, _I, *[_P] * 4, _T]),
        "remix_table_": (None, [_I, _P, _P]),
    },
    ("f32", "f64"): {
        "remix_fit_workspace_": (_I, [_I, _I]),
        "remix_fit_tiles_": (None, [_P, _I, _I, _P, _P, _T]),
        "remix_fit_nll_": (_D, [_P, _I, _I, _P, _P, _P, _P, _P, _T]),
        "remix_fit_rows_": (_D, [_P, _I, _I, _P, _P, _P, _P, _T]),
        "remix_fit_edges_": (None, [_P, _I, _P, _P, _I, _D, _P, _T]),
        "remix_fit_reinsert_": (_I, [_P, _I, _I, _I, _P, _P, _D, _P, _P, _P, _P]),
        "remix_fit_largest_": (None, [_P, _I, _I, _I, _P, _T]),
        "remix_moments_": (_T, [_P, _I, _I, _I, _P, _T, *[_P] * 4, _T]),  # of remix.inversion
        "remix_moment_gradient_": (_T, [_P, _P, _I, _I, _I, *[_P] * 3, _T, _P, _T]),
        "remix_frobenius_": (_D, [_P, _I, _I, _I, _P, _P, _P, _P, _P, _T]),
    },
}


def find_library() -> Path | None:
    """The compiled library beside this file, or None if it was not built."""
    return next(iter(sorted(Path(__file__).parent.glob("_native*.so"))), None)


def find_openmp() -> Path | None:
    """The GNU OpenMP runtime that torch has loaded: other packages may have brought their own beside it."""
    homes = [Path(torch.__file__).parent, Path(torch.__file__).parent.with_name("torch.libs")]
    return next((file for home in homes for file in sorted(home.glob("**/libgomp*.so*"))), None)


def _require_whole_file(path: Path) -> None:
    """Raises ``OSError`` for an ELF file that ends too early: loading one can kill the process.

    The table of sections is the last thing in the file; the header says where it is (offsets of the 64-bit format).
    """
    with path.open("rb") as file:
        header = file.read(64)
    if header[:5] == b"\x7fELF\x02":
        order: Literal["little", "big"] = "little" if header[5:6] == b"\x01" else "big"
        start, width, count = (int.from_bytes(header[i:j], order) for i, j in ((40, 48), (58, 60), (60, 62)))
        if len(header) < 64 or path.stat().st_size < start + width * count:
            raise OSError(f"{path.name} is damaged: the file ends too early")


class NativeLibrary:
    """Typed calls into the library. Tensors must be on the CPU; shapes are the caller's duty.

    Raises ``OSError`` if the file cannot be loaded or is of another version.
    """

    def __init__(self, path: Path):
        self.path = path
        _require_whole_file(path)
        self.handle = ctypes.CDLL(str(path))
        try:
            abi = self.handle.remix_abi()
        except AttributeError as error:
            raise OSError(f"{path.name} is not a REMIX kernel library") from error
        if abi != ABI:
            raise OSError(f"{path.name} has ABI {abi}, this version of remix needs {ABI}: reinstall it")
        self.isa = ISA_NAMES[self.handle.remix_isa()]
        self._functions: dict[tuple[str, torch.dtype | None], Any] = {}
        for name, signature in _SIGNATURES.items():
            self._functions[name, None] = self._function(name, signature)
        for ends, signatures in _TYPED.items():
            for name, signature in signatures.items():
                for dtype, end in zip((torch.float32, torch.float64), ends, strict=True):
                    self._functions[name, dtype] = self._function(name + end, signature)
        self.threads = self._borrow_threads()
        self._memcmp = ctypes.CDLL(None).memcmp
        self._memcmp.argtypes, self._memcmp.restype = [c_void_p, c_void_p, c_size_t], c_int

    def _function(self, name: str, signature: tuple[Any, list[Any]]) -> Any:
        function = getattr(self.handle, name)
        function.restype, function.argtypes = signature
        return function

    def call(self, name: str, *arguments: Any, dtype: torch.dtype | None = None) -> Any:
        """Call a function, that of ``dtype`` where its name ends in "_"; tensors, contiguous, are passed by address."""
        return self._functions[name, dtype](*[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments])

    def _borrow_threads(self) -> str:
        """Makes the kernels run on torch's own threads where they are GNU OpenMP's; says whose threads they run on."""
        runtime = find_openmp()
        if runtime is None:
            return "own"
        try:
            pool = ctypes.CDLL(str(runtime), mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
        except (OSError, AttributeError):
            return "own"
        self.call("remix_lend_threads", ctypes.cast(pool, c_void_p))
        # The threads of a pool do not live on in a forked child: there, own ones.
        os.register_at_fork(after_in_child=lambda: self.call("remix_lend_threads", None))
        return "torch"

    def empty(self, rows: int, size: int, dtype: torch.dtype) -> Tensor:
        """Like torch.empty(rows, size). Large ones live in blocks that are used again when the tensor is gone.

        On fresh memory the page faults alone cost more than the sweeps. At most 384 MiB of unused blocks are kept;
        `kernels.release` frees them.
        """
        count = rows * size * dtype.itemsize
        if count < LARGE:
            return torch.empty(rows, size, dtype=dtype)
        address = self.call("remix_take_block", count)
        if not address:
            raise MemoryError(f"no memory for {rows} x {size} numbers ({count / 2**20:.0f} MiB)")
        buffer = (ctypes.c_char * count).from_address(address)
        weakref.finalize(buffer, self.handle.remix_give_block, address).atexit = False
        return torch.frombuffer(buffer, dtype=dtype).view(rows, size)

    def filter_rows(
        self, x: Tensor, loc: Tensor | None, rank: Tensor, sweeps: tuple[Sweep, ...], squares: bool, keep: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """As `remix.laplace.blocked.filter_rows`, with ``rank`` (D,) int32: coordinate -> sorted position."""
        if x.stride(-1) != 1:
            x = x.contiguous()
        if loc is not None:
            loc = loc.contiguous()
        rows, size = x.shape
        total = torch.empty(rows, dtype=torch.float64) if squares else None
        out = self.empty(rows, size, x.dtype) if keep else None
        if rows == 0:
            return out, total
        first, second = sweeps[0], sweeps[1] if len(sweeps) > 1 else None
        failed = self.call(
            "remix_filter_", x, x.stride(0), rows, size, loc, rank, first.coef, first.down,
            second.coef if second else None, bool(second and second.down), total, out, size, torch.get_num_threads(),
            dtype=x.dtype,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for the scratch tiles of {rows} x {size} rows")
        return out, total

    def gradients(
        self, x: Tensor, loc: Tensor, rank: Tensor, vectors: Tensor, row_weight: Tensor, in_rows: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Of sum_b t_b NLL_b: in x (B, D) if ``in_rows``; in diag, weight, coord and loc, (4, D) float64."""
        if x.stride(-1) != 1:
            x = x.contiguous()
        loc, row_weight = loc.contiguous(), row_weight.contiguous()  # held until the call returns
        rows, size = x.shape
        out = self.empty(rows, size, x.dtype) if in_rows else None
        parameters = torch.empty(4, size, dtype=torch.float64)
        if not rows:
            return out, parameters.zero_()
        arguments = (loc, rank, vectors, row_weight, out, parameters, torch.get_num_threads())
        if self.call("remix_gradients_", x, x.stride(0), rows, size, *arguments, dtype=x.dtype):
            raise MemoryError(f"no memory for the scratch tiles of {rows} x {size} rows")
        return out, parameters

    def sample_rows(
        self, seed: int, rows: int, rank: Tensor, dtype: torch.dtype, sweep: Sweep | None, loc: Tensor | None
    ) -> Tensor:
        """(rows, D) standard normal draws through an upward sweep, plus loc. A row depends on seed and number only."""
        size = rank.shape[0]
        out = self.empty(rows, size, dtype)
        arguments = (rank, sweep.coef if sweep else None, loc, out, torch.get_num_threads())
        if rows and self.call("remix_sample_", seed, rows, size, *arguments, dtype=dtype):
            raise MemoryError(f"no memory for the scratch tiles of {rows} x {size} draws")
        return out

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two contiguous tensors of one shape and dtype hold the same bits; far faster than torch.equal."""
        return not self._memcmp(one.data_ptr(), other.data_ptr(), one.nbytes)

    def argsort(self, coord: Tensor) -> Tensor:
        """Stable argsort of contiguous float64 coordinates (D,)."""
        order = torch.empty(coord.shape[0], dtype=torch.int64)
        if self.call("remix_argsort", coord.shape[0], coord, order):
            raise MemoryError(f"no memory to sort {coord.shape[0]} coordinates")
        return order

    def factorise(self, diag: Tensor, weight: Tensor, coord: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(order, rank, vectors) of contiguous float64 parameters (D,), sort included."""
        size = diag.shape[0]
        order, rank = torch.empty(size, dtype=torch.int64), torch.empty(size, dtype=torch.int32)
        vectors = torch.empty(10, size, dtype=torch.float64)
        if self.call("remix_factorise", size, diag, weight, coord, order, rank, vectors):
            raise MemoryError(f"no memory to sort {size} coordinates")
        return order, rank, vectors

    def sweep_table(self, vectors: Tensor, dtype: torch.dtype) -> Tensor:
        """As `remix.laplace.factor.sweep_table`."""
        table = torch.empty(4, vectors.shape[1], 4, dtype=dtype)
        self.call("remix_table_", vectors.shape[1], vectors, table, dtype=dtype)
        return table
