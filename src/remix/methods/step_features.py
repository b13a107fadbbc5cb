"""Parts that exact heads share: pooled features of several blocks, of all images of a step, in one pass."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.team import full_precision
from remix.networks import Backbone, FeatureMap, Pooling
from remix.networks.backbone import detail_size
from remix.networks.probe import block_shapes, evaluating, where_not_finite

__all__ = ["StepFeatures", "block_sets", "block_sizes", "copies", "spaced", "stage_ends", "step_features"]

_DEEPEST = 4  # blocks, from the last one on, that may stand side by side
_ROUNDING = 1e-5  # of the largest feature: images in batches of other sizes differ by less


class StepFeatures(NamedTuple):
    """Features (N, sum of sizes) of blocks side by side, in single precision, and the labels (N,) of the images."""

    rows: Tensor
    labels: Tensor
    blocks: tuple[int, ...]
    sizes: tuple[int, ...]
    detail: bool = False

    def through(self, map: FeatureMap) -> Tensor:
        """What a map makes of those of its blocks, (N, D): in single precision, as when it is used, then float64."""
        parts = dict(zip(self.blocks, self.rows.split(self.sizes, 1), strict=True))
        mapped: Tensor = copy.deepcopy(map).cpu()(torch.cat([parts[block] for block in map.blocks], 1))
        return mapped.double()

    def some(self, most: int) -> StepFeatures:
        """Of ``most`` images at equal distances, or of all."""
        places = spaced(len(self.labels), most)
        return self._replace(rows=self.rows[places], labels=self.labels[places])


def spaced(count: int, most: int) -> Tensor:
    """``most`` places at equal distances among ``count``, or all."""
    return torch.arange(count) if count <= most else torch.linspace(0, count - 1, most, dtype=torch.float64).long()


def copies(rows: Tensor) -> int:
    """How many rows (N, D) are another one again, but for rounding."""
    order = (rows.double() @ torch.linspace(-1, 1, rows.shape[1], dtype=torch.float64)).argsort()
    found = rows[order]
    return int(((found[1:] - found[:-1]).abs().amax(1) <= _ROUNDING * rows.abs().max()).sum())


def step_features(engine: Engine, data: ImageDataset, at: Pooling, sizes: Sequence[int]) -> StepFeatures:
    """Send the images of a step through the network once.

    Args:
        engine: whose network.
        data: the images.
        at: which features are wanted.
        sizes: how many features each block gives.

    Raises:
        ValueError: if a feature is not finite.

    """
    rows, labels, count = [], [], math.ceil(len(data) / engine.batch_size)
    with evaluating(engine.backbone):
        for done, (items, targets) in enumerate(engine.images(data), start=1):
            with engine.team.precision():
                found = full_precision(engine.backbone.pooled(*items, at))
            if not bool(torch.isfinite(found).all()):
                where = where_not_finite(engine.backbone, *items)
                raise ValueError(
                    f"the network gives NaN or infinite features for an image{where}: check the images and its weights"
                )
            rows.append(found.cpu())
            labels.append(targets.cpu())
            engine.monitor.batch(0, done, count)
    return StepFeatures(torch.cat(rows), torch.cat(labels), at.blocks, tuple(sizes), at.detail)


def block_sizes(backbone: Backbone) -> list[int]:
    """Pooled features of each block; 0 of one whose output cannot be pooled."""
    shapes = block_shapes(backbone)[1:]
    sizes = [shape[0] if len(shape) in (1, 3) else shape[-1] if len(shape) == 2 else 0 for shape in shapes]
    return [*sizes[:-1], backbone.feature_dim]


def stage_ends(backbone: Backbone, start: int = 0, detail: bool = True) -> FeatureMap:
    """What the last block of every stage gives: after it, feature maps have another height and width.

    A network whose blocks give no maps, such as a transformer, has one stage.

    Args:
        backbone: the network.
        start: the first block that runs; what lies before it has no part.
        detail: whether maps are pooled by `detail_pool`.

    """
    shapes, last = block_shapes(backbone)[1:], len(backbone.blocks()) - 1
    changes = [
        number
        for number, (one, other) in enumerate(pairwise(shapes))
        if number >= start and len(one) == len(other) == 3 and one[1:] != other[1:]
    ]
    means = block_sizes(backbone)
    ends = [*changes, last]
    sizes = [detail_size(shapes[end]) if detail and len(shapes[end]) == 3 else means[end] for end in ends]
    return FeatureMap(ends, sizes, detail=detail)


def block_sets(sizes: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Which blocks' features to choose from: the last, the one before it, and two, three and four side by side.

    Args:
        sizes: of `block_sizes`.
        most: features of a set; the last block alone may have more.

    """
    last = len(sizes) - 1
    sets = [(last - 1,), *(tuple(range(last - more, last + 1)) for more in range(1, _DEEPEST))]
    fitting = [one for one in sets if one[0] >= 0 and all(sizes[b] for b in one) and sum(sizes[b] for b in one) <= most]
    return [(last,), *fitting]
