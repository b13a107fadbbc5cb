"""From pooled features of several blocks to what a head is solved on: fixed, stored, the same for every image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from remix.networks.backbone import Pooling

__all__ = ["FeatureMap"]

_MOST = 1 << 20  # blocks, features, random features: what a file may describe


class FeatureMap(nn.Module):
    """Pooled features of blocks side by side (N, sum of sizes) -> features (N, dim), nothing in it is trained.

    Args:
        blocks: numbers of the blocks whose pooled outputs it takes, ascending.
        sizes: how many features each of them gives.
        rooted: take square roots (of the absolute value, with its sign), then make those of each block a unit vector.
            Averages of what ReLUs let through have long tails and lengths that say little; roots shorten the tails, and
            no block outweighs another.
        unit: make all of them together a unit vector, as they are.
        detail: the features are those of `detail_pool`, not averages.
        projection: random weights (M, sum of sizes): the features are then what a ReLU leaves of M projections.

    Raises:
        ValueError: if these do not make a map.

    """

    def __init__(
        self,
        blocks: Sequence[int],
        sizes: Sequence[int],
        rooted: bool = False,
        projection: Tensor | None = None,
        unit: bool = False,
        detail: bool = False,
    ) -> None:
        super().__init__()
        ascending = list(blocks) == sorted(set(blocks)) and len(blocks) == len(sizes) > 0
        whole = all(type(number) is int and 0 <= number < _MOST for number in (*blocks, *sizes))
        if not ascending or not whole or min(sizes) < 1 or {type(rooted), type(unit), type(detail)} != {bool}:
            raise ValueError(f"no map of features: blocks {str(blocks)[:60]} of {str(sizes)[:60]} features")
        self.blocks, self.sizes = tuple(blocks), tuple(sizes)
        self.rooted, self.unit, self.detail = rooted, unit, detail
        if projection is not None and (projection.dim() != 2 or projection.shape[1] != sum(sizes)):
            raise ValueError(f"a projection of {sum(sizes)} features has as many columns, not {projection.shape[1:]}")
        self.projection: Tensor | None
        self.register_buffer("projection", projection)

    @property
    def at(self) -> Pooling:
        """The features that it takes."""
        return Pooling(self.blocks, self.detail)

    @property
    def dim(self) -> int:
        """Features that come out."""
        return sum(self.sizes) if self.projection is None else len(self.projection)

    def describe(self) -> dict[str, Any]:
        """As plain JSON; the projection is a tensor."""
        width = 0 if self.projection is None else len(self.projection)
        more = {name: True for name in ("unit", "detail") if getattr(self, name)}
        return {
            "blocks": list(self.blocks),
            "sizes": list(self.sizes),
            "rooted": self.rooted,
            "projection": width,
        } | more

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> FeatureMap:
        """The inverse of `describe`, with a projection of zeros. Raises ValueError, KeyError."""
        width, sizes = described["projection"], described["sizes"]
        more = {name: described.get(name, False) for name in ("unit", "detail")}
        bare = cls(described["blocks"], sizes, described["rooted"], **more)
        if type(width) is not int or not 0 <= width < _MOST:
            raise ValueError(f"its head is described as {str(dict(described))[:60]}")
        return cls(bare.blocks, sizes, bare.rooted, torch.zeros(width, sum(sizes)) if width else None, **more)

    @classmethod
    def shapes(cls, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of its tensors, by name, before it is built. Raises as `from_description`."""
        with torch.device("meta"):
            outline = cls.from_description(described)
        return {name: tuple(tensor.shape) for name, tensor in outline.state_dict().items()}

    def forward(self, features: Tensor) -> Tensor:
        """Map them. Raises ValueError if they have another length."""
        if features.dim() != 2 or features.shape[1] != sum(self.sizes):
            raise ValueError(f"features must be (N, {sum(self.sizes)}), got {tuple(features.shape)}")
        if self.rooted:
            rooted = features.sign() * features.abs().sqrt()
            features = torch.cat([normalize(part, dim=1) for part in rooted.split(self.sizes, 1)], 1)
        features = normalize(features, dim=1) if self.unit else features
        return features if self.projection is None else linear(features, self.projection).relu()

    def last_average(self, features: Tensor, channels: int) -> Tensor:
        """Of features (N, sum of sizes), the average of the last block's ``channels``: of its quarters, with detail."""
        last = features[:, -self.sizes[-1] :]
        parts = self.sizes[-1] // channels
        if parts == 1:
            return last
        return last[:, : (parts - 1) * channels].unflatten(1, (channels, parts - 1)).mean(2)

    def with_projection(self, width: int, generator: torch.Generator) -> FeatureMap:
        """The same with ``width`` random projections: standard normal numbers over the root of their number."""
        numbers = torch.randn(width, sum(self.sizes), generator=generator) / math.sqrt(sum(self.sizes))
        return FeatureMap(self.blocks, self.sizes, self.rooted, numbers, self.unit, self.detail)
