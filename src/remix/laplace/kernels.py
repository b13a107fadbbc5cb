"""Which code runs: the native library, the torch path, or the sequential reference.

The native library serves tensors on the CPU when it was built, loads, and passes a self-test; everything else is
served by the torch path. ``REMIX_KERNELS=native|torch|reference`` in the environment, or `use`, decides otherwise.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from remix.laplace import blocked, factor, reference
from remix.laplace.factor import VECTORS, Factor, Sweep
from remix.laplace.native_library import NativeLibrary, find_library
from remix.laplace.validate import checks_possible

__all__ = [
    "PATHS", "KernelStatus", "argsort", "empty", "factorise", "filter_rows", "native", "release", "same",
    "single_thread", "status", "sweep_table", "threads", "use",
]  # fmt: skip

PATHS = ("native", "torch", "reference")
_forced: list[str] = []


@dataclass(frozen=True)
class KernelStatus:
    """The path in use for CPU tensors, and why; whose threads the native kernels run on: "torch" or "own"."""

    path: str
    reason: str
    isa: str | None = None
    library: str | None = None
    threads: str | None = None


@contextmanager
def use(path: str) -> Iterator[None]:
    """Within the block, every operation takes this path: "native", "torch" or "reference"."""
    _check(path)
    if path == "native" and _load()[0] is None:
        raise ValueError(f"path 'native' was asked for, but {_load()[1]}")
    _forced.append(path)
    try:
        yield
    finally:
        _forced.pop()


def status() -> KernelStatus:
    """What `remix doctor` prints: the path that serves tensors on the CPU."""
    path, reason = _path()
    library = _load()[0] if path == "native" else None
    if library is None:
        return KernelStatus(path, reason)
    return KernelStatus(path, reason, library.isa, str(library.path), library.threads)


def native() -> NativeLibrary | None:
    """The native library if it is in use for CPU tensors, else None."""
    return _load()[0] if _path()[0] == "native" else None


def release() -> None:
    """Gives the unused memory that the native kernels keep for the next call (at most 384 MiB) back to the system."""
    library = _load()[0]
    if library is not None:
        library.call("remix_release")


def empty(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Like torch.empty on the CPU; large ones on huge pages where there are any, for tables read in random order."""
    library = native()
    return torch.empty(rows, columns, dtype=dtype) if library is None else library.empty(rows, columns, dtype)


def _check(path: str) -> None:
    if path not in PATHS:
        raise ValueError(f"unknown kernel path {path!r}: expected one of {', '.join(PATHS)}")


def _path() -> tuple[str, str]:
    if _forced:
        return _forced[-1], "chosen by remix.laplace.kernels.use"
    wish = os.environ.get("REMIX_KERNELS", "")
    if wish:
        _check(wish)
        if wish != "native":
            return wish, f"REMIX_KERNELS={wish} in the environment"
    library, reason = _load()
    return ("native" if library else "torch"), reason


@cache
def _load() -> tuple[NativeLibrary | None, str]:
    """The library, or None and the reason why not, with one warning."""
    path = find_library()
    try:
        if path is None:
            raise OSError("the native library was not built (no C++ compiler at installation?)")
        library = NativeLibrary(path)
        problem = _self_test(library)
    except (OSError, AttributeError) as error:
        problem = str(error)
    if problem:
        warnings.warn(f"remix: the native kernels are not used: {problem}. The torch path serves.", stacklevel=2)
        return None, problem
    return library, f"built, loaded and self-tested ({library.isa})"


def _self_test(library: NativeLibrary) -> str:
    """Compares a small whole computation with the reference; returns what is wrong, or ''."""
    size = 37
    ramp = torch.arange(size, dtype=torch.float64)
    diag, weight, coord = 0.5 + (ramp * 0.7).sin().square(), (ramp * 1.3).cos(), (ramp * 5) % 17 * 0.3
    order, rank, vectors = library.factorise(diag, weight, coord)
    wanted = reference.kalman(diag, weight, coord)
    exact_vectors = torch.stack([wanted[name] for name in VECTORS])
    if not torch.equal(order, wanted["order"]) or not torch.allclose(vectors, exact_vectors, rtol=1e-12, atol=1e-14):
        return "the factorisation failed its self-test"
    x = torch.sin(torch.arange(19 * size, dtype=torch.float64)).view(19, size)
    exact = torch.linalg.solve(reference.dense(diag, weight, coord), x.mT).mT
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        coef = library.sweep_table(vectors, dtype)
        out, total = library.filter_rows(
            x.to(dtype), None, rank, (Sweep(coef[0], False), Sweep(coef[1], True)), True, True
        )
        assert out is not None
        assert total is not None
        if not torch.allclose(out.double(), exact, rtol=tolerance, atol=tolerance):
            return f"the row kernels failed their self-test in {dtype}"
        if not torch.allclose(total, (x * exact).sum(1), rtol=tolerance, atol=tolerance):
            return f"the quadratic form failed its self-test in {dtype}"
    return ""


def _path_for(tensor: Tensor) -> str:
    path = _path()[0]
    return "torch" if path == "native" and tensor.device.type != "cpu" else path


def factorise(diag: Tensor, weight: Tensor, coord: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(order, rank, vectors) of a `Factor` from parameters (D,), by the path in use."""
    diag, weight, coord = (v.double().contiguous() for v in (diag, weight, coord))
    path = _path_for(diag)
    if path == "native" and (library := native()):
        return library.factorise(diag, weight, coord)
    coord, order = torch.sort(coord, stable=True)
    rank = torch.empty_like(order, dtype=torch.int32)
    rank[order] = torch.arange(order.shape[0], dtype=torch.int32, device=order.device)
    gap = torch.cat([coord.new_full((1,), torch.inf), coord.diff()])
    phi, q = torch.exp(-gap), -torch.expm1(-2 * gap)
    ordered = {"diag": diag[order], "weight": weight[order], "phi": phi}
    swept = (reference if path == "reference" else blocked).factorise(ordered["diag"], ordered["weight"], phi, q)
    named = ordered | swept
    return order, rank, torch.stack([named[name] for name in VECTORS])


def same(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether tensors have the same shapes, dtypes, devices and values, pair by pair."""
    library = native()
    for one, other in zip(ones, others, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        on_cpu = one.device.type == "cpu" and one.is_contiguous() and other.is_contiguous()
        if not (library.same(one, other) if library and on_cpu else torch.equal(one, other)):
            return False
    return True


def argsort(coord: Tensor) -> Tensor:
    """Stable argsort of coordinates (D,), by the path in use."""
    if _path_for(coord) == "native" and (library := native()):
        return library.argsort(coord.detach().double().contiguous())
    return torch.argsort(coord.detach(), stable=True)


def sweep_table(of: Factor, dtype: torch.dtype) -> Tensor:
    """Coefficients of the four sweeps in the dtype of the data, (4, D, 4), by the path in use; made once."""
    if dtype not in of.tables:
        with torch.inference_mode(False):  # what is kept must serve autograd later
            # No operator, so traced by torch.compile and vmap: then by torch.
            seen = checks_possible(of.vectors) and _path_for(of.vectors) == "native"
            library = native() if seen else None
            make = factor.sweep_table if library is None else library.sweep_table
            of.tables[dtype] = make(of.vectors, dtype)
    return of.tables[dtype]


def filter_rows(
    x: Tensor,
    loc: Tensor | None,
    order: Tensor,
    rank: Tensor,
    sweeps: tuple[Sweep, ...],
    squares: bool = False,
    keep: bool = True,
) -> tuple[Tensor | None, Tensor | None]:
    """Sweeps over rows x (B, D), by the path in use; see `remix.laplace.blocked.filter_rows`."""
    path = _path_for(x)
    if path == "native" and (library := native()):
        return library.filter_rows(x, loc, rank, sweeps, squares, keep)
    return (reference if path == "reference" else blocked).filter_rows(x, loc, order, sweeps, squares, keep)


def threads(work: int = 1 << 30) -> int:
    """Threads for a native call on ``work`` numbers: torch's setting, or one where starting a thread costs more."""
    return torch.get_num_threads() if work > 1 << 17 else 1


@contextmanager
def single_thread() -> Iterator[None]:
    """One torch thread for a while; also a decorator.

    For LAPACK, whose factorisations differ in the last bits with the number of threads, and for long loops of short
    operations on blocks that fit the cache: there waking threads costs more than they do, many times more on a machine
    with other work.
    """
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
