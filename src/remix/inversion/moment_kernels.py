"""Sums over the rows of an activation, and what their gradient adds to it: native for the channels of small networks.

An activation comes in one of two layouts without a copy: ``planes`` (N, D, P), where the P values of a coordinate lie
together, as in (N, C, H, W); and ``rows`` (R, D), where the D coordinates of a row do, as in channels-last maps.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from remix.laplace import kernels

__all__ = ["affine_planes", "affine_rows", "sums_of_planes", "sums_of_rows"]

_NATIVE_DIM = 128  # above it the matrix products of torch are as fast
_FEW = 8  # too few rows per image for a product of their own
_P, _I, _T = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


@cache
def _typed(handle: ctypes.CDLL) -> ctypes.CDLL:
    for suffix in ("f32", "f64"):
        getattr(handle, f"remix_moments_{suffix}").argtypes = [_P, _I, _I, _I, _P, _T, _P, _T]
        getattr(handle, f"remix_affine_{suffix}").argtypes = [_P, _P, _I, _I, _I, _P, _P, _T, _P, _T]
    return handle


def _native(name: str, x: Tensor) -> Any:
    """The native function for planes x, or None where torch serves."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or x.shape[1] > _NATIVE_DIM:
        return None
    library = kernels.native()
    if library is None:
        return None
    return getattr(_typed(library.handle), f"remix_{name}_{'f32' if x.dtype == torch.float32 else 'f64'}")


def sums_of_planes(x: Tensor, origin: Tensor, full: bool) -> Tensor:
    """Sums of y and of y y' (or y * y) over all rows y = x - origin of contiguous planes (N, D, P).

    Returns:
        (1 + D, D), or (2, D) if not ``full``; float64 from the native path.

    """
    images, dim, positions = x.shape
    function = _native("moments", x)
    if function is not None:
        sums = torch.empty(1 + dim if full else 2, dim, dtype=torch.float64)
        origin = origin.contiguous()
        _require(function(x.data_ptr(), images, dim, positions, origin.data_ptr(), full, sums.data_ptr(), _threads(x)))
        return sums
    if positions < _FEW:
        return sums_of_rows(x.movedim(1, 2).reshape(-1, dim), origin, full)
    y = x - origin[:, None]
    first = y.sum((0, 2))[None]
    return torch.cat([first, torch.bmm(y, y.mT).sum(0) if full else y.square_().sum((0, 2))[None]])


def sums_of_rows(x: Tensor, origin: Tensor, full: bool) -> Tensor:
    """The same of rows (R, D)."""
    y = x - origin
    first = y.sum(0)[None]
    return torch.cat([first, y.mT @ y if full else y.square_().sum(0)[None]])


def affine_planes(x: Tensor, given: Tensor | None, slope: Tensor, shift: Tensor) -> Tensor:
    """Given + slope y + shift for every row y of contiguous planes x (N, D, P).

    Args:
        x: the activation.
        given: of its shape, contiguous; None for zero.
        slope: (D, D), or (D,) for a diagonal one.
        shift: (D,).

    """
    images, dim, positions = x.shape
    full = slope.dim() == 2
    function = _native("affine", x)
    if function is not None:
        missing = -dim % 4 if full else 0
        slope = pad(slope, (0, 0, 0, missing)).contiguous() if full else slope.contiguous()
        shift = pad(shift, (0, missing)).contiguous()
        out = kernels.empty(images, dim * positions, x.dtype)
        address = None if given is None else given.data_ptr()
        _require(
            function(
                x.data_ptr(), address, images, dim, positions, slope.data_ptr(), shift.data_ptr(), full, out.data_ptr(),
                _threads(x),
            )
        )  # fmt: skip
        return out.view(x.shape)
    if full and positions < _FEW:
        flat = None if given is None else given.movedim(1, 2).reshape(-1, dim)
        rows = affine_rows(x.movedim(1, 2).reshape(-1, dim), flat, slope, shift)
        return rows.view(images, positions, dim).movedim(1, 2)
    start = shift[:, None].expand(images, dim, 1) if given is None else given + shift[:, None]
    if not full:
        return torch.addcmul(start, x, slope[:, None])
    return torch.baddbmm(start, slope.expand(images, dim, dim), x)


def affine_rows(x: Tensor, given: Tensor | None, slope: Tensor, shift: Tensor) -> Tensor:
    """The same for rows x (R, D); a full slope must be symmetric."""
    start = shift if given is None else given + shift
    return torch.addmm(start, x, slope) if slope.dim() == 2 else torch.addcmul(start, x, slope)


def _threads(x: Tensor) -> int:
    """Torch's setting, or one where starting a thread costs more than the work."""
    return torch.get_num_threads() if x.numel() > 1 << 17 else 1


def _require(failed: int) -> None:
    if failed:
        raise MemoryError("no memory for the scratch tiles of an activation's moments")
