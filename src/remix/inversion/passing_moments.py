"""Moments of an activation as it passes, and their gradient in closed form, by native code or by torch.

Moments are averages over rows y = x - origin: of y, and below it of y y' or, not ``full``, of y * y; (1 + D, D) or
(2, D). The D coordinates of a row lie along some axis of the activation (N, ...), the rows along all others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from remix.laplace import kernels
from remix.laplace.native_library import NativeLibrary

__all__ = ["Affine", "moment_gradient", "moments", "passing_moments"]

_NATIVE_DIM = 128  # above it the matrix products of torch are as fast
_NATIVE_DTYPES = (torch.float32, torch.float64)
_FEW = 8  # too few rows per image for a product of their own

Affine = tuple[Tensor, Tensor]
"""Scale and offset (D,) of a map of every coordinate on its own."""


def passing_moments(
    x: Tensor, axis: int, origin: Tensor, full: bool, then: Affine | None = None
) -> tuple[Tensor, Tensor]:
    """An activation as it goes on, and the averages of y and of y y' (or y * y) over all its rows y = x - origin.

    The gradient of a function of these averages is affine in x, so it is added in one pass to the gradient that comes
    back to what went on: whoever uses the activation afterwards must use the one returned. Each pass costs about a
    twentieth of a 3x3 convolution of the same channels.

    Args:
        x: (N, ...), with the D coordinates of a row along ``axis``.
        axis: of the coordinates, not 0.
        origin: (D,), contiguous, of the dtype and device of x; moments about a point near the mean lose no digits.
        full: all products, or only squares.
        then: scale and offset (D,) of the map that comes next, to be done in the same passes; None for none.

    Returns:
        x, or scale x + offset, and the mean and below it the second moment: (1 + D, D), or (2, D) if not ``full``.

    """
    scale, offset = (None, None) if then is None else then
    passed, measured = _PassingMoments.apply(x, axis, origin, full, scale, offset)
    return passed, measured


class _PassingMoments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, axis: int, origin: Tensor, full: bool, scale: Tensor | None, offset: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, origin, scale)
        ctx.axis = axis
        ctx.set_materialize_grads(False)
        # Where nothing is done to it, the activation goes on as another tensor on the same memory: torch would turn x
        # itself into a view that the next layer may not overwrite.
        measured, passed = moments(x, axis, origin, full, None if scale is None or offset is None else (scale, offset))
        return passed, measured

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor | None, slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        x, origin, scale = ctx.saved_tensors
        if slopes is None and scale is not None:
            slopes = origin.new_zeros(2, len(origin))
        if slopes is not None:
            given = moment_gradient(x, ctx.axis, origin, slopes, given, scale)
        return given, None, None, None, None, None


def moments(x: Tensor, axis: int, origin: Tensor, full: bool, then: Affine | None = None) -> tuple[Tensor, Tensor]:
    """The moments of an activation, and the activation as it goes on; arguments as in `passing_moments`."""
    dim = origin.shape[0]
    library = _library(x, axis, dim)
    if library is not None:
        out = torch.empty(1 + dim if full else 2, dim, dtype=x.dtype)
        normal = None if then is None else kernels.empty(x.shape[0], x.numel() // x.shape[0], x.dtype)
        arguments = (x, *_sizes(x, dim), origin, full, *(then or (None, None)), normal, out)
        _require(library.call("remix_moments_", *arguments, _threads(x), dtype=x.dtype))
        return out, x.detach() if normal is None else normal.view(x.shape)
    return _torch_moments(x, axis, origin, full), x.detach() if then is None else _map(x, axis, *then)


def _torch_moments(x: Tensor, axis: int, origin: Tensor, full: bool) -> Tensor:
    dim = origin.shape[0]
    rows = _rows(x, axis)
    if rows is None:
        planes = _planes(x, axis)
        if planes.shape[2] >= _FEW:
            y = planes - origin[:, None]
            second = torch.bmm(y, y.mT).sum(0) if full else y.square().sum((0, 2))[None]
            return torch.cat([y.sum((0, 2))[None], second]) / (x.numel() // dim)
        rows = planes.movedim(1, 2).reshape(-1, dim)
    y = rows - origin
    return torch.cat([y.sum(0)[None], y.mT @ y if full else y.square().sum(0)[None]]) / (x.numel() // dim)


def _map(x: Tensor, axis: int, scale: Tensor, offset: Tensor) -> Tensor:
    shape = [1] * x.dim()
    shape[axis] = -1
    return torch.addcmul(offset.view(shape), x, scale.view(shape))


def moment_gradient(
    x: Tensor, axis: int, origin: Tensor, slopes: Tensor, given: Tensor | None, scale: Tensor | None = None
) -> Tensor:
    """The gradient in x of a function of its moments, plus what comes from the activation as it went on.

    Args:
        x: as in `moments`, like ``axis`` and ``origin``.
        axis: of the coordinates.
        origin: (D,).
        slopes: of the function in the moments, of their shape.
        given: the gradient in the activation as it went on, of the shape of x; None for zero.
        scale: of what happened to it in `moments`; None for nothing.

    """
    dim = origin.shape[0]
    full = slopes.shape[0] > 2
    library = _library(x, axis, dim)
    if library is not None:
        start = None if given is None else given.contiguous()
        slopes = slopes.contiguous()
        out = kernels.empty(x.shape[0], x.numel() // x.shape[0], x.dtype)
        arguments = (x, start, *_sizes(x, dim), slopes, origin, scale, full, out)
        _require(library.call("remix_moment_gradient_", *arguments, _threads(x), dtype=x.dtype))
        return out.view(x.shape)
    if given is not None and scale is not None:
        given = _map(given, axis, scale, torch.zeros_like(scale))
    return _torch_gradient(x, axis, origin, slopes, given)


def _torch_gradient(x: Tensor, axis: int, origin: Tensor, slopes: Tensor, given: Tensor | None) -> Tensor:
    dim, full = origin.shape[0], slopes.shape[0] > 2
    slopes = slopes / (x.numel() // dim)
    slope = slopes[1:] + slopes[1:].mT if full else 2 * slopes[1]
    shift = slopes[0] - (slope @ origin if full else slope * origin)
    rows = _rows(x, axis)
    planes = _planes(x, axis) if rows is None else None
    if planes is not None and planes.shape[2] >= _FEW:
        images = planes.shape[0]
        start = shift[:, None].expand(images, dim, 1)
        if given is not None:
            start = _planes(given, axis) + shift[:, None]
        product = (
            torch.baddbmm(start, slope.expand(images, dim, dim), planes)
            if full
            else torch.addcmul(start, planes, slope[:, None])
        )
        return product.reshape(x.movedim(axis, 1).shape).movedim(1, axis)
    moved = x.movedim(axis, -1)
    flat = moved.reshape(-1, dim)
    start = shift if given is None else given.movedim(axis, -1).reshape(-1, dim) + shift
    product = torch.addmm(start, flat, slope) if full else torch.addcmul(start, flat, slope)
    return product.view(moved.shape).movedim(-1, axis)


def _library(x: Tensor, axis: int, dim: int) -> NativeLibrary | None:
    """The native library if it serves: images (N, D, ...) whose positions lie together, of few coordinates."""
    if axis != 1 or x.dim() < 3 or dim > _NATIVE_DIM or x.device.type != "cpu" or x.dtype not in _NATIVE_DTYPES:
        return None
    return kernels.native() if x.is_contiguous() and x.numel() else None


def _sizes(x: Tensor, dim: int) -> tuple[int, int, int]:
    return x.shape[0], dim, x.numel() // (x.shape[0] * dim)


def _rows(x: Tensor, axis: int) -> Tensor | None:
    """x as rows (R, D), if its coordinates lie together."""
    moved = x.movedim(axis, -1)
    return moved.view(-1, x.shape[axis]) if moved.is_contiguous() else None


def _planes(x: Tensor, axis: int) -> Tensor:
    """x as planes (N, D, P)."""
    return x.movedim(axis, 1).reshape(x.shape[0], x.shape[axis], -1)


def _threads(x: Tensor) -> int:
    """Torch's setting, or one where starting a thread costs more than the work."""
    return torch.get_num_threads() if x.numel() > 1 << 17 else 1


def _require(failed: int) -> None:
    if failed:
        raise MemoryError("no memory for the scratch tiles of an activation's moments")
