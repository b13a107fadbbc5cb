"""Mean and second moments of activations as they pass, with their gradient in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from remix.inversion.moment_kernels import affine_planes, affine_rows, sums_of_planes, sums_of_rows

__all__ = ["passing_moments"]


def passing_moments(x: Tensor, axis: int, origin: Tensor, full: bool) -> tuple[Tensor, Tensor]:
    """An activation as it goes on, and the averages of y and of y y' (or y * y) over all its rows y = x - origin.

    The gradient of a function of these averages is affine in x, so it is added in one pass to the gradient that comes
    back to what went on: whoever uses the activation afterwards must use the one returned. Each pass costs about a
    twentieth of a 3x3 convolution of the same channels.

    Args:
        x: (N, ...), with the D coordinates of a row along ``axis``.
        axis: of the coordinates, not 0.
        origin: (D,); moments about a point near the mean lose no digits.
        full: all products, or only squares.

    Returns:
        x, and the mean and below it the second moment: (1 + D, D), or (2, D) if not ``full``.

    """
    passed, moments = _PassingMoments.apply(x, axis, origin, full)
    return passed, moments


class _PassingMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, origin: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, origin)
        ctx.axis, ctx.full = axis, full
        ctx.set_materialize_grads(False)
        rows = _rows(x, axis)
        sums = sums_of_planes(_planes(x, axis), origin, full) if rows is None else sums_of_rows(rows, origin, full)
        # Not x itself, which torch would turn into a view that the next layer may not overwrite.
        return x.detach(), (sums / (x.numel() // len(origin))).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor | None, slopes: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        x, origin = ctx.saved_tensors
        if slopes is None:
            return given, None, None, None
        slopes = slopes / (x.numel() // len(origin))
        if ctx.full:
            slope = slopes[1:] + slopes[1:].mT
            shift = slopes[0] - slope @ origin
        else:
            slope = 2 * slopes[1]
            shift = slopes[0] - slope * origin
        rows = _rows(x, ctx.axis)
        if rows is not None:
            moved = x.movedim(ctx.axis, -1)
            start = None if given is None else given.movedim(ctx.axis, -1).reshape(rows.shape)
            return affine_rows(rows, start, slope, shift).view(moved.shape).movedim(-1, ctx.axis), None, None, None
        moved = x.movedim(ctx.axis, 1)
        start = None if given is None else _planes(given, ctx.axis)
        total = affine_planes(_planes(x, ctx.axis), start, slope, shift)
        return total.reshape(moved.shape).movedim(1, ctx.axis), None, None, None


def _rows(x: Tensor, axis: int) -> Tensor | None:
    """x as rows (R, D) if its coordinates lie together."""
    moved = x.movedim(axis, -1)
    return moved.view(-1, x.shape[axis]) if moved.is_contiguous() else None


def _planes(x: Tensor, axis: int) -> Tensor:
    """x as contiguous planes (N, D, P)."""
    return x.movedim(axis, 1).reshape(x.shape[0], x.shape[axis], -1).contiguous()
