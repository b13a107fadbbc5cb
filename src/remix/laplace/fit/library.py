"""The native functions of fitting, typed for ctypes; ``None`` where the twins must serve."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["call", "library", "pointer", "threads"]

_P, _I, _D, _T = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int

# name -> (result, arguments); names ending in "_" exist for f32 and f64.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "remix_fit_workspace_": (_I, [_I, _I]),
    "remix_fit_tiles_": (None, [_P, _I, _I, _P, _P, _T]),
    "remix_fit_nll_": (_D, [_P, _I, _I, _P, _P, _P, _P, _P, _T]),
    "remix_fit_rows_": (_D, [_P, _I, _I, _P, _P, _P, _P, _T]),
    "remix_fit_edges_": (None, [_P, _I, _P, _P, _I, _D, _P, _T]),
    "remix_fit_reinsert_": (_I, [_P, _I, _I, _I, _P, _P, _D, _P, _P, _P, _P]),
    "remix_frobenius_": (None, [_P, _I, _I, _I, _P, _P, _P, _P, _P, _P, _T]),
    "remix_fit_path": (_I, [_P, _P, _P, _I, _I, _P]),
}


@cache
def library() -> ctypes.CDLL | None:
    """The loaded native library with argument types set, or None."""
    found = sorted(Path(__file__).parent.parent.glob("_native*.so"))
    if not found:
        return None
    loaded = ctypes.CDLL(str(found[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        for suffix in ("f32", "f64") if name.endswith("_") else ("",):
            function = getattr(loaded, name + suffix)
            function.restype, function.argtypes = result, arguments
    return loaded


def call(name: str, dtype: torch.dtype, *arguments: Any) -> Any:
    """Call ``name`` for data of ``dtype``; tensors are passed by address."""
    suffix = "f32" if dtype == torch.float32 else "f64"
    return getattr(library(), name + suffix)(*(pointer(a) if isinstance(a, Tensor) else a for a in arguments))


def pointer(tensor: Tensor) -> int:
    """Address of a contiguous CPU tensor."""
    assert tensor.is_contiguous() and tensor.device.type == "cpu"
    return tensor.data_ptr()


def threads() -> int:
    """Threads for a native call: torch's setting."""
    return torch.get_num_threads()
