"""The native path: C++ kernels behind a C ABI, loaded with ctypes."""

from __future__ import annotations

import ctypes
import os
import weakref
from ctypes import c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from remix.laplace.filters import Sweep

__all__ = ["ABI", "NativeLibrary", "find_library"]

ABI = 2  # raised whenever a function is added or changes: an old library steps aside instead of failing
LARGE = 1 << 22  # bytes from which results live in reusable blocks
ISA_NAMES = ("generic", "avx2", "avx512")


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


def _pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())


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
        self.threads = self._borrow_threads()
        argtypes: list[Any] = [c_void_p, c_int64, c_int64, c_int64, *[c_void_p] * 3, c_int, c_void_p, c_int]
        argtypes += [c_void_p, c_void_p, c_int64, c_int]
        self._filter = {torch.float32: self.handle.remix_filter_float, torch.float64: self.handle.remix_filter_double}
        for function in self._filter.values():
            function.argtypes, function.restype = argtypes, c_int
        argtypes = [c_void_p, c_int64, c_int64, c_int64, *[c_void_p] * 6, c_int]
        self._gradients = {
            torch.float32: self.handle.remix_gradients_float,
            torch.float64: self.handle.remix_gradients_double,
        }
        for function in self._gradients.values():
            function.argtypes, function.restype = argtypes, c_int
        self._sample = {torch.float32: self.handle.remix_sample_float, torch.float64: self.handle.remix_sample_double}
        for function in self._sample.values():
            function.argtypes = [c_uint64, c_int64, c_int64, *[c_void_p] * 4, c_int]
            function.restype = c_int
        self.handle.remix_take_block.argtypes, self.handle.remix_take_block.restype = [c_int64], c_void_p
        self.handle.remix_give_block.argtypes, self.handle.remix_give_block.restype = [c_void_p], None
        self.handle.remix_argsort.argtypes, self.handle.remix_argsort.restype = [c_int64, c_void_p, c_void_p], c_int
        self.handle.remix_factorise.argtypes = [c_int64] + [c_void_p] * 6
        self.handle.remix_factorise.restype = c_int
        self._table = {torch.float32: self.handle.remix_table_float, torch.float64: self.handle.remix_table_double}
        for function in self._table.values():
            function.argtypes, function.restype = [c_int64, c_void_p, c_void_p], None

        self._memcmp = ctypes.CDLL(None).memcmp
        self._memcmp.argtypes, self._memcmp.restype = [c_void_p, c_void_p, c_size_t], c_int

    def _borrow_threads(self) -> str:
        """Makes the kernels run on torch's own threads where they are GNU OpenMP's; says whose threads they run on."""
        lend = self.handle.remix_lend_threads
        lend.argtypes, lend.restype = [c_void_p], None
        runtime = find_openmp()
        if runtime is None:
            return "own"
        try:
            pool = ctypes.CDLL(str(runtime), mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
        except (OSError, AttributeError):
            return "own"
        lend(ctypes.cast(pool, c_void_p))
        # The threads of a pool do not live on in a forked child: there, own ones.
        os.register_at_fork(after_in_child=lambda: lend(None))
        return "torch"

    def empty(self, rows: int, size: int, dtype: torch.dtype) -> Tensor:
        """Like torch.empty(rows, size). Large ones live in blocks that are used again when the tensor is gone.

        On fresh memory the page faults alone cost more than the sweeps. At most 384 MiB of unused blocks are kept;
        `kernels.release` frees them.
        """
        count = rows * size * dtype.itemsize
        if count < LARGE:
            return torch.empty(rows, size, dtype=dtype)
        address = self.handle.remix_take_block(count)
        if not address:
            raise MemoryError(f"no memory for {rows} x {size} numbers ({count / 2**20:.0f} MiB)")
        buffer = (ctypes.c_char * count).from_address(address)
        weakref.finalize(buffer, self.handle.remix_give_block, address).atexit = False
        return torch.frombuffer(buffer, dtype=dtype).view(rows, size)

    def filter_rows(
        self,
        x: Tensor,
        loc: Tensor | None,
        rank: Tensor,
        sweeps: tuple[Sweep, ...],
        squares: bool,
        keep: bool,
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
        failed = self._filter[x.dtype](
            _pointer(x), x.stride(0), rows, size, _pointer(loc), _pointer(rank),
            _pointer(first.coef), first.down, _pointer(second.coef if second else None), bool(second and second.down),
            _pointer(total), _pointer(out), size, torch.get_num_threads(),
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
        if self._gradients[x.dtype](
            _pointer(x), x.stride(0), rows, size, _pointer(loc), _pointer(rank), _pointer(vectors),
            _pointer(row_weight), _pointer(out), _pointer(parameters), torch.get_num_threads(),
        ):  # fmt: skip
            raise MemoryError(f"no memory for the scratch tiles of {rows} x {size} rows")
        return out, parameters

    def sample_rows(
        self, seed: int, rows: int, rank: Tensor, dtype: torch.dtype, sweep: Sweep | None, loc: Tensor | None
    ) -> Tensor:
        """(rows, D) standard normal draws through an upward sweep, plus loc. A row depends on seed and number only."""
        out = self.empty(rows, rank.shape[0], dtype)
        coef = sweep.coef if sweep else None
        if rows and self._sample[dtype](
            seed, rows, rank.shape[0], _pointer(rank), _pointer(coef), _pointer(loc), _pointer(out),
            torch.get_num_threads(),
        ):  # fmt: skip
            raise MemoryError(f"no memory for the scratch tiles of {rows} x {rank.shape[0]} draws")
        return out

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two contiguous tensors of one shape and dtype hold the same bits; far faster than torch.equal."""
        return not self._memcmp(one.data_ptr(), other.data_ptr(), one.nbytes)

    def argsort(self, coord: Tensor) -> Tensor:
        """Stable argsort of contiguous float64 coordinates (D,)."""
        order = torch.empty(coord.shape[0], dtype=torch.int64)
        if self.handle.remix_argsort(coord.shape[0], _pointer(coord), _pointer(order)):
            raise MemoryError(f"no memory to sort {coord.shape[0]} coordinates")
        return order

    def factorise(self, diag: Tensor, weight: Tensor, coord: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(order, rank, vectors) of contiguous float64 parameters (D,), sort included."""
        size = diag.shape[0]
        order, rank = torch.empty(size, dtype=torch.int64), torch.empty(size, dtype=torch.int32)
        vectors = torch.empty(10, size, dtype=torch.float64)
        if self.handle.remix_factorise(size, *map(_pointer, (diag, weight, coord, order, rank, vectors))):
            raise MemoryError(f"no memory to sort {size} coordinates")
        return order, rank, vectors

    def sweep_table(self, vectors: Tensor, dtype: torch.dtype) -> Tensor:
        """As `remix.laplace.filters.sweep_table`."""
        table = torch.empty(4, vectors.shape[1], 4, dtype=dtype)
        self._table[dtype](vectors.shape[1], _pointer(vectors), _pointer(table))
        return table
