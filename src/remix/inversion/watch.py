"""Running a part of a network and measuring on the way what terms need."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeGuard

import torch
from torch import Tensor, nn

from remix.inversion.passing_moments import Affine
from remix.inversion.terms import Average, LayerMoments, Seen
from remix.networks.hooks import Hooks, Point
from remix.statistics import require_finite

__all__ = ["Watch", "frozen"]

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


class Watch:
    """Runs a part of a network, such as a block, or all of it up to the pooled features.

    Args:
        network: where the points are.
        forward: what to run; it calls modules of ``network``.
        averages: that will be asked for.
        points: whose activations are captured besides those that the averages look at.

    """

    def __init__(
        self,
        network: nn.Module,
        forward: Callable[[Tensor], Tensor],
        averages: Iterable[Average] = (),
        points: Iterable[Point] = (),
    ) -> None:
        self.network, self.forward = network, forward
        wanted = list(points)
        self._moments: dict[Point, list[LayerMoments]] = defaultdict(list)
        for average in averages:
            if isinstance(average, LayerMoments) and average.points:
                self._moments[average.layer.point].append(average)
            else:
                wanted += average.points
        self._points = list(dict.fromkeys(wanted))
        self._passed: dict[object, Tensor] = {}
        self._hooks = Hooks(network, dict.fromkeys((*self._points, *self._moments)), self._pass)
        self._layers = [layer for point in list(self._moments) if (layer := self._measuring(point)) is not None]

    def _measuring(self, point: Point) -> _MeasuringBatchNorm | None:
        """The stand-in for a BatchNorm layer, if the moments of its channels are all that is measured there."""
        module, (moments, *others) = self.network.get_submodule(point.module), self._moments[point]
        if point.side == "output" or others or moments.layer.view.axis != 1 or not _is_batchnorm(module):
            return None
        del self._moments[point]
        return _MeasuringBatchNorm(module, moments, self._passed)

    def _pass(self, point: Point, x: Tensor) -> Tensor:
        for moments in self._moments.get(point, ()):
            x, self._passed[moments.key] = moments.passing(x)
        return x

    @contextmanager
    def run(self, variable: Tensor, inputs: Tensor, part: slice) -> Iterator[Seen]:
        """Run the inputs; the activations are let go at the end of the ``with`` block."""
        self._passed.clear()
        with self._hooks as hooks, ExitStack() as stack:
            for layer in self._layers:
                stack.enter_context(layer)
            output = self.forward(inputs)
            missing = [str(point) for point in hooks.points if point not in hooks]
            if missing:
                raise ValueError(
                    f"the network does not pass {missing[0]!r} in this part, so a term on it cannot be computed"
                )
            captured = {point: hooks[point] for point in hooks.points}
        # What was only measured on the way is let go as the backward pass uses it up: its memory serves the gradients.
        activations = {point: captured[point] for point in self._points}
        del captured
        self._hooks.clear()
        passed = dict(self._passed)
        self._passed.clear()
        yield Seen(part, variable, inputs, output, activations, passed)

    @torch.no_grad()
    def require_finite(self, inputs: Tensor, step: int) -> None:
        """Run the inputs once more, watching everything, to find where numbers stop being finite.

        Raises:
            NonFiniteActivationError: naming the first such layer.

        """
        require_finite(Point("", "input"), inputs, step)
        leaves = [name for name, module in self.network.named_modules() if name and not list(module.children())]
        with Hooks(self.network, [Point(name, "output") for name in leaves]) as hooks:
            self.forward(inputs)
            for point in hooks:
                require_finite(point, hooks[point], step)


class _MeasuringBatchNorm:
    """Stands in for the ``forward`` of a BatchNorm layer inside a ``with`` block, in the thread that opened it.

    A frozen layer is an affine map of every channel: its input is read once for its moments and its output, and in the
    backward pass once for both gradients. A layer that is being trained keeps its own ``forward`` and is only measured.
    """

    def __init__(self, module: BatchNorm, moments: LayerMoments, passed: dict[object, Tensor]) -> None:
        self._module, self._moments, self._passed = module, moments, passed
        self._thread: int | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._module.__dict__["forward"] = self

    def __exit__(self, *_: object) -> None:
        del self._module.__dict__["forward"]

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output."""
        plain = type(self._module).forward
        if threading.get_ident() != self._thread:
            return plain(self._module, x)
        then = _affine(self._module, x)
        passed, self._passed[self._moments.key] = self._moments.passing(x, then)
        return plain(self._module, passed) if then is None else passed


def _is_batchnorm(module: nn.Module) -> TypeGuard[BatchNorm]:
    """Whether a module is a BatchNorm layer of torch itself, nothing derived from it, with running statistics."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return type(module) in kinds and module.running_mean is not None and "forward" not in module.__dict__


def _affine(layer: BatchNorm, x: Tensor) -> Affine | None:
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


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients of parameters, for as long as the block lasts; everything is given back afterwards."""
    modes = {module: module.training for network in networks for module in network.modules()}
    wanted = {parameter: parameter.requires_grad for network in networks for parameter in network.parameters()}
    try:
        for network in networks:
            network.eval().requires_grad_(False)
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, gradient in wanted.items():
            parameter.requires_grad_(gradient)
