"""Mean and second moments of activations as they pass, with their gradient in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from remix.inversion.moment_kernels import Affine, moment_gradient, moments

__all__ = ["passing_moments"]


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
