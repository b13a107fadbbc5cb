"""The native functions of fitting, typed for ctypes; ``None`` where the twins must serve."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from remix.laplace import kernels

__all__ = ["call", "library", "pointer", "single_thread", "threads"]

_P, _I, _D, _T = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int

# name -> (result, arguments); names ending in "_" exist for f32 and f64.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "remix_fit_workspace_": (_I, [_I, _I]),
    "remix_fit_tiles_": (None, [_P, _I, _I, _P, _P, _T]),
    "remix_fit_nll_": (_D, [_P, _I, _I, _P, _P, _P, _P, _P, _T]),
    "remix_fit_rows_": (_D, [_P, _I, _I, _P, _P, _P, _P, _T]),
    "remix_fit_edges_": (None, [_P, _I, _P, _P, _I, _D, _P, _T]),
    "remix_fit_reinsert_": (_I, [_P, _I, _I, _I, _P, _P, _D, _P, _P, _P, _P]),
    "remix_fit_largest_": (None, [_P, _I, _I, _I, _P, _T]),
    "remix_frobenius_": (_D, [_P, _I, _I, _I, _P, _P, _P, _P, _P, _T]),
    "remix_fit_trim": (None, []),
    "remix_fit_path": (_I, [_P, _P, _P, _I, _I, _P]),
}


def library() -> ctypes.CDLL | None:
    """The native library with argument types set, or None where the twins serve (`remix.laplace.kernels`)."""
    loaded = kernels.native()
    return None if loaded is None else _typed(loaded.handle)


@cache
def _typed(handle: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _SIGNATURES.items():
        for suffix in ("f32", "f64") if name.endswith("_") else ("",):
            function = getattr(handle, name + suffix)
            function.restype, function.argtypes = result, arguments
    return handle


def call(name: str, dtype: torch.dtype, *arguments: Any) -> Any:
    """Call ``name`` for data of ``dtype``; tensors are passed by address."""
    suffix = "f32" if dtype == torch.float32 else "f64"
    return getattr(library(), name + suffix)(*(pointer(a) if isinstance(a, Tensor) else a for a in arguments))


def pointer(tensor: Tensor) -> int:
    """Address of a contiguous CPU tensor."""
    assert tensor.is_contiguous()
    assert tensor.device.type == "cpu"
    return tensor.data_ptr()


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
