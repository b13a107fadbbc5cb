"""BatchNorm of a frozen network: an affine map of every channel, done in the pass that measures what it receives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor, nn

from remix.inversion.moment_kernels import Affine

__all__ = ["MeasuringBatchNorm", "can_measure"]

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d

Passing = Callable[[Tensor, Affine | None], tuple[Tensor, Tensor]]
"""From an activation and what happens to it next to its successor and what was measured."""


def can_measure(module: nn.Module) -> TypeGuard[BatchNorm]:
    """Whether a module is a BatchNorm layer of torch itself, nothing derived from it, with running statistics."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return type(module) in kinds and module.running_mean is not None and "forward" not in module.__dict__


class MeasuringBatchNorm:
    """Stands in for the ``forward`` of a BatchNorm layer inside a ``with`` block, in the thread that opened it.

    It reads the layer's input once for its moments and its output, and in the backward pass once for both gradients.
    A layer that is being trained keeps its own ``forward`` and is only measured.

    Args:
        module: for which `can_measure` holds.
        passing: does both; with None for what happens next it only measures.
        note: receives what was measured.

    """

    def __init__(self, module: BatchNorm, passing: Passing, note: Callable[[Tensor], None]) -> None:
        self._module, self._passing, self._note = module, passing, note
        self._thread: int | None = None

    def __enter__(self) -> MeasuringBatchNorm:
        self._thread = threading.get_ident()
        self._module.__dict__["forward"] = self
        return self

    def __exit__(self, *_: object) -> None:
        del self._module.__dict__["forward"]

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output."""
        plain = type(self._module).forward
        if threading.get_ident() != self._thread:
            return plain(self._module, x)
        then = self._map(self._module, x)
        passed, measured = self._passing(x, then)
        self._note(measured)
        return plain(self._module, passed) if then is None else passed

    def _map(self, layer: BatchNorm, x: Tensor) -> Affine | None:
        """Scale and offset as the layer's tensors are now; None if the layer is not frozen."""
        mean, variance, weight, bias = layer.running_mean, layer.running_var, layer.weight, layer.bias
        if layer.training or mean is None or variance is None or mean.dtype != x.dtype or x.dim() < 3:
            return None
        if any(tensor is not None and tensor.requires_grad for tensor in (mean, variance, weight, bias)):
            return None
        with torch.no_grad():
            scale = (variance + layer.eps).rsqrt()
            scale = scale if weight is None else scale * weight
            offset = -mean * scale if bias is None else bias - mean * scale
            return scale.contiguous(), offset.contiguous()
