"""What the terms of an objective can see: a part of the batch on its way through a part of the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from remix.inversion.frozen_batchnorm import MeasuringBatchNorm, can_measure
from remix.inversion.moment_kernels import Affine
from remix.statistics import Hooks, Point, require_finite

__all__ = ["Gauge", "Observed", "Section", "frozen"]


class Gauge(Protocol):
    """Measures an activation at the moment in which the network passes it on, while it is in the cache."""

    @property
    def key(self) -> object:
        """The name of what it measures."""
        ...

    @property
    def points(self) -> tuple[Point, ...]:
        """The one point it looks at."""
        ...

    @property
    def by_channel(self) -> bool:
        """Whether it can also do, in the same pass, a map of every channel on its own that comes next."""
        ...

    def passing(self, x: Tensor, then: Affine | None = None) -> tuple[Tensor, Tensor]:
        """What goes on in place of the activation (the same numbers, or those mapped), and what was measured."""
        ...


@dataclass(frozen=True)
class Observed:
    """A part of the batch and what the network made of it.

    Attributes:
        part: which samples of the whole batch these are.
        variable: what is sought, (n, ...): images, or the input of a block.
        inputs: what the network received: the variable, perhaps jittered, flipped, resized.
        output: what it gave.
        activations: at the watched points.
        passed: by key, what gauges measured on the way.

    """

    part: slice
    variable: Tensor
    inputs: Tensor
    output: Tensor
    activations: Mapping[Point, Tensor]
    passed: Mapping[object, Tensor] = field(default_factory=dict)


class Section:
    """A part of a network that can be run and watched: a block, or all of it up to the pooled features.

    Args:
        network: where the points are.
        forward: what to run; it calls modules of ``network``.
        points: what to watch.
        gauges: what to measure on the way.

    """

    def __init__(
        self,
        network: nn.Module,
        forward: Callable[[Tensor], Tensor],
        points: Iterable[Point] = (),
        gauges: Iterable[Gauge] = (),
    ) -> None:
        self.network = network
        self.forward = forward
        self._points = list(dict.fromkeys(points))
        self._gauges: dict[Point, list[Gauge]] = defaultdict(list)
        for gauge in gauges:
            self._gauges[gauge.points[0]].append(gauge)
        self._passed: dict[object, Tensor] = {}
        self._taps = Hooks(network, dict.fromkeys((*self._points, *self._gauges)), self._pass)
        self._layers = [layer for point in list(self._gauges) if (layer := self._measuring(point)) is not None]

    def _measuring(self, point: Point) -> MeasuringBatchNorm | None:
        """The stand-in for a BatchNorm layer, if only one gauge looks at what it receives."""
        module, (gauge, *others) = self.network.get_submodule(point.module), self._gauges[point]
        if point.side == "output" or others or not gauge.by_channel or not can_measure(module):
            return None
        del self._gauges[point]
        return MeasuringBatchNorm(module, gauge.passing, lambda measured: self._passed.update({gauge.key: measured}))

    def watching(self, points: Iterable[Point], gauges: Iterable[Gauge] = ()) -> Section:
        """The same part of the network, watched at these points."""
        return Section(self.network, self.forward, points, gauges)

    def _pass(self, point: Point, x: Tensor) -> Tensor:
        for gauge in self._gauges.get(point, ()):
            x, self._passed[gauge.key] = gauge.passing(x)
        return x

    @contextmanager
    def observe(self, variable: Tensor, inputs: Tensor, part: slice) -> Iterator[Observed]:
        """Run the inputs; the activations are let go at the end of the ``with`` block."""
        with self._taps as hooks, ExitStack() as stack:
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
        self._taps.clear()
        passed, self._passed = self._passed, {}
        yield Observed(part, variable, inputs, output, activations, passed)

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
