"""What inversion may use: a frozen network, its head, and the statistics of its activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property

import torch
from torch import Tensor, nn

from remix.inversion.observed import Section
from remix.inversion.priors import CovariancePrior
from remix.inversion.settings import PriorSettings
from remix.inversion.term import Term
from remix.networks import Backbone, Block
from remix.networks.probe import block_shapes, evaluating, probe_images
from remix.statistics import Hooks, LayerStatistics, Point, batchnorm_statistics, block_input_points, check_layers

__all__ = ["Knowledge"]


class Knowledge:
    """A network and what is remembered of the data it has seen.

    Args:
        backbone: the network. Inversion changes nothing in it.
        layers: statistics by key, as `measure_layers` gives them or a `Memory` keeps them: covariances for the prior,
            and those of block inputs for layer-wise inversion. The means and variances that BatchNorm layers keep by
            themselves need not be among them.
        classify: from pooled features (N, D) to logits (N, K), usually the head; where labels matter.
        prior_layers: keys of ``layers`` that the covariance prior looks at; by default all but the block inputs.

    Raises:
        TypeError: if the backbone is not a module.
        ValueError: for statistics of another network, or an unknown key in ``prior_layers``.

    """

    def __init__(
        self,
        backbone: Backbone,
        layers: Mapping[str, LayerStatistics] | None = None,
        classify: Callable[[Tensor], Tensor] | None = None,
        prior_layers: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(backbone, nn.Module):
            raise TypeError(f"a backbone must be an nn.Module, got {type(backbone).__name__}")
        self.layers = dict(layers or {})
        check_layers(self.layers, backbone)
        self.backbone: Backbone = backbone
        self.module: nn.Module = backbone
        self.classify = classify
        for key in prior_layers or ():
            if key not in self.layers:
                close = get_close_matches(key, self.layers, n=3, cutoff=0.3) or list(self.layers)[:5]
                raise ValueError(f"no statistics are called {key!r}; the closest are: {', '.join(close) or 'none'}")
        self._prior_layers = None if prior_layers is None else [self.layers[key] for key in prior_layers]

    @property
    def networks(self) -> list[nn.Module]:
        """What has to be frozen."""
        return [self.module, *([self.classify] if isinstance(self.classify, nn.Module) else [])]

    @property
    def moments(self) -> list[LayerStatistics]:
        """The layers whose means and variances a batch is held to: BatchNorm inputs, or all known layers without them.

        As they are now: a network that learns on keeps other averages.

        Raises:
            ValueError: if nothing is known.

        """
        running = list(batchnorm_statistics(self.module).values())
        chosen = running or self._own_layers
        if not chosen:
            raise ValueError(
                f"{type(self.module).__name__} has no BatchNorm layers with running statistics and no statistics were "
                "given: measure some with remix.statistics.measure_layers"
            )
        return chosen

    @property
    def block_inputs(self) -> dict[str, LayerStatistics]:
        """By block name, statistics of what the block receives, for those that were measured."""
        points = {point: name for name, point in block_input_points(self.backbone).items()}
        found: dict[str, LayerStatistics] = {}
        for layer in self.layers.values():
            if layer.point in points and layer.view.name in ("channels", "token-channels", "token-positions"):
                found.setdefault(points[layer.point], layer)
        return found

    @property
    def _own_layers(self) -> list[LayerStatistics]:
        inputs = {layer.key for layer in self.block_inputs.values()}
        return [layer for layer in self.layers.values() if layer.key not in inputs]

    def prior_layers(self, prior: PriorSettings) -> list[LayerStatistics]:
        """The layers a prior looks at.

        Raises:
            ValueError: if none is known that has this kind of covariance.

        """
        if prior.kind == "none":
            return []
        chosen = self._own_layers if self._prior_layers is None else self._prior_layers
        if prior.kind == "diagonal" and not chosen:
            return self.moments
        if not chosen:
            raise ValueError(
                f"the prior {prior.kind!r} needs measured statistics: give layers=remix.statistics.measure_layers(...)"
            )
        return chosen

    def prior_terms(self, prior: PriorSettings, reached: Iterable[Point] | None = None) -> list[Term]:
        """The prior as a term, on those of its layers that are reached (all by default); none if there are none."""
        places = None if reached is None else set(reached)
        layers = [layer for layer in self.prior_layers(prior) if places is None or layer.point in places]
        if not layers or not prior.weight:
            return []
        return [Term("prior", prior.weight, CovariancePrior(layers, prior.kind, prior.form))]

    def block(self, name: str) -> tuple[int, Block]:
        """A block by name, and its place.

        Raises:
            ValueError: for an unknown name.

        """
        blocks = self.backbone.blocks()
        for i, block in enumerate(blocks):
            if block.name == name:
                return i, block
        raise ValueError(f"there is no block {name!r}; the blocks are: {', '.join(block.name for block in blocks)}")

    def whole(self) -> Section:
        """The whole network, up to pooled features."""
        return Section(self.module, self.backbone.pooled)

    def section(self, block: Block, last: bool) -> Section:
        """One block; the last one followed by pooling."""
        pool = self.backbone.pool
        return Section(self.module, lambda x: pool(block(x)) if last else block(x))

    @cached_property
    def block_shapes(self) -> list[tuple[int, ...]]:
        """What each block receives, without the batch axis."""
        return block_shapes(self.backbone)[:-1]

    def reached(self, number: int) -> set[Point]:
        """The points of all known statistics that data passes inside one block."""
        points = dict.fromkeys(layer.point for layer in (*self.layers.values(), *self.moments))
        block = self.backbone.blocks()[number]
        inputs = torch.zeros(2, *self.block_shapes[number]).to(self.like)
        with evaluating(self.module), Hooks(self.module, points) as hooks:
            block(inputs)
            return set(hooks)

    @property
    def like(self) -> Tensor:
        """An empty tensor with the network's dtype and device."""
        return probe_images(self.module, (1, 1, 1))[:0]
