"""What the terms of an objective can see: a part of the batch on its way through a part of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remix.statistics import Point, Taps, require_finite

__all__ = ["Observed", "Section", "frozen"]


@dataclass(frozen=True)
class Observed:
    """A part of the batch and what the network made of it.

    Attributes:
        part: which samples of the whole batch these are.
        variable: what is sought, (n, ...): images, or the input of a block.
        inputs: what the network received: the variable, perhaps jittered, flipped, resized.
        output: what it gave.
        activations: at the tapped points.

    """

    part: slice
    variable: Tensor
    inputs: Tensor
    output: Tensor
    activations: Mapping[Point, Tensor]


class Section:
    """A part of a network that can be run and watched: a block, or all of it up to the pooled features.

    Args:
        network: where the points are.
        forward: what to run; it calls modules of ``network``.
        points: what to watch.

    """

    def __init__(self, network: nn.Module, forward: Callable[[Tensor], Tensor], points: Iterable[Point] = ()) -> None:
        self.network = network
        self.forward = forward
        self._taps = Taps(network, dict.fromkeys(points))

    def watching(self, points: Iterable[Point]) -> Section:
        """The same part of the network, watched at these points."""
        return Section(self.network, self.forward, points)

    @contextmanager
    def observe(self, variable: Tensor, inputs: Tensor, part: slice) -> Iterator[Observed]:
        """Run the inputs; the activations are let go at the end of the ``with`` block."""
        with self._taps as taps:
            output = self.forward(inputs)
            activations = {point: taps[point] for point in taps}
        missing = [str(point) for point in self._taps.points if point not in activations]
        if missing:
            raise ValueError(
                f"the network does not pass {missing[0]!r} in this part, so a term on it cannot be computed"
            )
        try:
            yield Observed(part, variable, inputs, output, activations)
        finally:
            self._taps.clear()

    @torch.no_grad()
    def require_finite(self, inputs: Tensor, step: int) -> None:
        """Run the inputs once more, watching everything, to find where numbers stop being finite.

        Raises:
            NonFiniteActivationError: naming the first such layer.

        """
        require_finite(Point("", "input"), inputs, step)
        leaves = [name for name, module in self.network.named_modules() if name and not list(module.children())]
        with Taps(self.network, [Point(name, "output") for name in leaves]) as taps:
            self.forward(inputs)
            for point in taps:
                require_finite(point, taps[point], step)


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
