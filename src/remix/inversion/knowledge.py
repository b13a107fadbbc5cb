"""What inversion may use: a frozen network, its head, and the statistics of its activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property

import torch
from torch import Tensor, nn

from remix.inversion.priors import CovariancePrior
from remix.inversion.settings import PriorSettings
from remix.inversion.terms import Term
from remix.networks import Backbone, Block
from remix.networks.hooks import Hooks, Point
from remix.networks.probe import block_shapes, evaluating, probe_images
from remix.statistics import LayerStatistics, batchnorm_statistics, check_layers

__all__ = ["Knowledge"]


class Knowledge:
    """A network and what is remembered of the data it has seen.

    Args:
        backbone: the network. Inversion changes nothing in it.
        layers: statistics by key, as `measure_layers` gives them or a `Memory` keeps them: covariances for the prior,
            those of block inputs for layer-wise inversion, and, for a network without BatchNorm layers, those of the
            places that it says are worth watching. The means and variances that BatchNorm layers keep by themselves
            need not be among them.
        classify: from pooled features (N, D) to logits (N, K), usually the head; where labels matter.
        prior_layers: keys of ``layers`` that the covariance prior looks at; by default all but the block inputs, and
            these too where nothing else is watched.
        start: the block whose inputs are sought; 0 for images. Only statistics from there on count.

    Raises:
        TypeError: if the backbone is none.
        ValueError: for statistics of another network, an unknown key in ``prior_layers``, or a block that is not there.

    """

    def __init__(
        self,
        backbone: Backbone,
        layers: Mapping[str, LayerStatistics] | None = None,
        classify: Callable[[Tensor], Tensor] | None = None,
        prior_layers: Sequence[str] | None = None,
        start: int = 0,
    ) -> None:
        if not isinstance(backbone, Backbone):
            raise TypeError(f"a backbone must be a remix.networks.Backbone, got {type(backbone).__name__}")
        blocks = len(backbone.blocks())
        if not 0 <= start < blocks:
            raise ValueError(f"start must be one of the blocks 0..{blocks - 1}, got {start}")
        self.backbone, self.classify, self.start = backbone, classify, start
        self.layers = dict(layers or {})
        check_layers(self.layers, backbone)
        if start:
            passed = self._passed([layer.point for layer in self.layers.values()], start, None)
            self.layers = {key: layer for key, layer in self.layers.items() if layer.point in passed}
        for key in prior_layers or ():
            if key not in self.layers:
                close = get_close_matches(key, self.layers, n=3, cutoff=0.3) or list(self.layers)[:5]
                raise ValueError(f"no statistics are called {key!r}; the closest are: {', '.join(close) or 'none'}")
        self._prior_layers = None if prior_layers is None else [self.layers[key] for key in prior_layers]

    @property
    def networks(self) -> list[nn.Module]:
        """What has to be frozen."""
        return [self.backbone, *([self.classify] if isinstance(self.classify, nn.Module) else [])]

    @property
    def moments(self) -> list[LayerStatistics]:
        """The layers whose means and variances a batch is held to.

        Those that the network says are worth watching: the inputs of its BatchNorm layers, as they are now (a network
        that learns on keeps other averages), or those of them that were measured; without any, all known layers.

        Raises:
            ValueError: if nothing is known.

        """
        known = {**self.layers, **batchnorm_statistics(self.backbone)}
        chosen = [known[key] for key in self._watched if key in known] or self._own_layers
        if not chosen:
            raise ValueError(
                f"{type(self.backbone).__name__} has no BatchNorm layers with running statistics and no statistics "
                "were given: measure some with remix.statistics.measure_layers"
            )
        return chosen

    @property
    def block_inputs(self) -> dict[str, LayerStatistics]:
        """By block name, statistics of what the block receives, for those that were measured."""
        found: dict[str, LayerStatistics] = {}
        for number, block in self.inner_blocks.items():
            point = self.backbone.point(number, "input")
            known = [layer for layer in self.layers.values() if layer.point == point and layer.view.axis is not None]
            if known:
                usual = [layer for layer in known if layer.view.name == block.view.name]
                found[block.name] = (usual or known)[0]
        return found

    @property
    def inner_blocks(self) -> dict[int, Block]:
        """The blocks from ``start`` on that do not receive images, by number."""
        blocks = self.backbone.blocks()
        return {number: blocks[number] for number in range(max(self.start, 1), len(blocks))}

    @property
    def _watched(self) -> list[str]:
        """The keys of statistics where the network says that they are worth taking."""
        return [f"{point}:{view.name}" for point, view in self.backbone.watched(self.start)]

    @property
    def _own_layers(self) -> list[LayerStatistics]:
        hidden = {layer.key for layer in self.block_inputs.values()} - set(self._watched)
        return [layer for layer in self.layers.values() if layer.key not in hidden]

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
        weight = prior.weight * (len(layers) if prior.summed else 1)
        return [Term("prior", weight, CovariancePrior(layers, prior.kind, prior.form))]

    def pooled(self, x: Tensor) -> Tensor:
        """Pooled features (N, D) of what is sought."""
        return self.backbone.pooled(x, self.start)

    @cached_property
    def block_shapes(self) -> list[tuple[int, ...]]:
        """What each block of the network receives, without the batch axis."""
        return block_shapes(self.backbone)[:-1]

    def reached(self, number: int) -> set[Point]:
        """The points of all known statistics that data passes inside one block."""
        return self._passed([layer.point for layer in (*self.layers.values(), *self.moments)], number, number + 1)

    def _passed(self, points: Iterable[Point], start: int, stop: int | None) -> set[Point]:
        inputs = torch.zeros(2, *self.block_shapes[start]).to(self.like)
        with evaluating(self.backbone), Hooks(self.backbone, dict.fromkeys(points)) as hooks:
            self.backbone.features(inputs, start, stop)
            return set(hooks)

    def require_images(self, strategy: str) -> None:
        """Check that images are sought. Raises ValueError if not: only layer-wise inversion starts inside a network."""
        if self.start:
            raise ValueError(f"{strategy} makes images, not the inputs of block {self.start}: use invert_layerwise")

    @property
    def like(self) -> Tensor:
        """An empty tensor with the network's dtype and device."""
        return probe_images(self.backbone, (1, 1, 1))[:0]
