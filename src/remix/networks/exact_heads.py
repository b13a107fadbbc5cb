"""Heads that are solved from sums, never trained: a fixed map of features, then linear or quadratic in them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.functional import linear

from remix.networks.backbone import Pooling
from remix.networks.feature_map import FeatureMap
from remix.networks.heads import Head, checked_sizes, register_head

__all__ = ["ExactHead", "ExactLinearHead", "ExactQuadraticHead"]


class ExactHead(Head):
    """Base class: the map, and how many classes came with each task. Weights are buffers: no optimiser finds them.

    ``scale`` multiplies all scores, so that they are logits.

    Args:
        map: from pooled features of blocks to features.
        task_sizes: classes of each task.

    """

    def __init__(self, map: FeatureMap, task_sizes: Sequence[int] = ()) -> None:
        super().__init__(sum(map.sizes))
        self.map, self._sizes = map, tuple(task_sizes)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(()))

    @property
    def at(self) -> Pooling:
        """Those of the map."""
        return self.map.at

    @property
    def task_sizes(self) -> tuple[int, ...]:
        """Number of classes of each task, in order."""
        return self._sizes

    def grow(self, names: Sequence[str], *, generator: torch.Generator | None = None) -> None:
        """Make room for the classes of a task, with weights of zero until they are solved for."""
        if not names:
            raise ValueError("a task needs at least one class, got none")
        self._sizes = (*self._sizes, len(names))
        for name, tensor in self.named_buffers(recurse=False):
            if name not in ("_placement", "scale"):
                self.register_buffer(name, torch.cat([tensor, tensor.new_zeros(len(names), *tensor.shape[1:])]))

    def without(self, labels: Collection[int]) -> ExactHead:
        """Without what is theirs; what the others have of them, a new solution alone takes away."""
        kept = self._kept(labels)
        places, rest = [label for mine in kept for label in mine], copy.deepcopy(self)
        rest._sizes = tuple(map(len, kept))
        for name, tensor in self.named_buffers(recurse=False):
            if name not in ("_placement", "scale"):
                rest.register_buffer(name, tensor[places].clone())
        return rest

    def newest(self) -> NoReturn:
        """There is nothing that could be trained."""
        raise NotImplementedError("the classes of an exact head are solved for together, none is trained")

    def describe(self) -> dict[str, Any]:
        """Classes of each task, and the map."""
        return {"kind": self.kind, "tasks": list(self._sizes), **self.map.describe()}

    @classmethod
    def from_description(cls, feature_dim: int, described: Mapping[str, Any]) -> ExactHead:
        """Build it again; how many features it takes, it says itself."""
        head = cls(FeatureMap.from_description(described))
        for name, shape in cls._own_shapes(head.map.dim, sum(checked_sizes(described))).items():
            head.register_buffer(name, torch.zeros(shape))
        head._sizes = tuple(described["tasks"])
        return head

    @classmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of the map's projection and its own weights."""
        with torch.device("meta"):
            outline = FeatureMap.from_description(described)
        own = cls._own_shapes(outline.dim, sum(checked_sizes(described)))
        return {"scale": (), **own, **{f"map.{name}": shape for name, shape in FeatureMap.shapes(described).items()}}

    @classmethod
    def _own_shapes(cls, dim: int, classes: int) -> dict[str, tuple[int, ...]]:
        raise NotImplementedError


@register_head("exact", chosen=False)
class ExactLinearHead(ExactHead):
    """Linear in the features of the map.

    Args:
        map: see `ExactHead`.
        task_sizes: see `ExactHead`.
        weight: (classes, features).
        bias: (classes,).

    """

    def __init__(
        self,
        map: FeatureMap,
        task_sizes: Sequence[int] = (),
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__(map, task_sizes)
        self.weight: Tensor
        self.bias: Tensor
        self.register_buffer("weight", torch.zeros(0, map.dim) if weight is None else weight)
        self.register_buffer("bias", torch.zeros(0) if bias is None else bias)

    @classmethod
    def _own_shapes(cls, dim: int, classes: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (classes, dim), "bias": (classes,)}

    def forward(self, features: Tensor) -> Tensor:
        """Pooled features (N, feature_dim) -> logits (N, classes)."""
        return self.scale * linear(self.map(features), self.weight, self.bias)


@register_head("quadratic", chosen=False)
class ExactQuadraticHead(ExactHead):
    """Minus the squared distance to the mean of each class, in the metric of that class.

    Args:
        map: see `ExactHead`.
        task_sizes: see `ExactHead`.
        mean: (classes, features).
        precision: (classes, features, features).

    """

    def __init__(
        self,
        map: FeatureMap,
        task_sizes: Sequence[int] = (),
        mean: Tensor | None = None,
        precision: Tensor | None = None,
    ) -> None:
        super().__init__(map, task_sizes)
        self.mean: Tensor
        self.precision: Tensor
        self.register_buffer("mean", torch.zeros(0, map.dim) if mean is None else mean)
        self.register_buffer("precision", torch.zeros(0, map.dim, map.dim) if precision is None else precision)

    @classmethod
    def _own_shapes(cls, dim: int, classes: int) -> dict[str, tuple[int, ...]]:
        return {"mean": (classes, dim), "precision": (classes, dim, dim)}

    def forward(self, features: Tensor) -> Tensor:
        """Pooled features (N, feature_dim) -> logits (N, classes)."""
        away = self.map(features) - self.mean[:, None]
        return -self.scale * (torch.bmm(away, self.precision) * away).sum(2).T
