"""A head that finds the task first, by the prototypes of all classes, and then the class within that task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from remix.networks.heads import Head, LinearHead, register_head

__all__ = ["RoutedHead"]

_BEHIND = 20.0  # logits of other tasks are at least so far below: probabilities of some 1e-9


@register_head("routed")
class RoutedHead(LinearHead):
    """Prototypical routing: the prototype that a feature is most like tells the task, the task's classifier the class.

    ``head(features)`` are logits of all classes as of every head: those of the task that was found are what its
    classifier gives, all others are lowered by the same amount until they lie below, so that the largest one is the
    answer. A class without a prototype attracts nothing: until its task is learned, no feature is routed there.

    Args:
        feature_dim, task_sizes, bias, generator: as of `LinearHead`.

    Attributes:
        prototypes: a feature per class, (classes, feature_dim), zero until somebody writes it.

    """

    all_tasks: ClassVar[bool] = False
    prototypes: Tensor
    _task_of: Tensor

    def __init__(
        self,
        feature_dim: int,
        task_sizes: Sequence[int] = (),
        *,
        bias: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(feature_dim, bias=bias)
        self.register_buffer("prototypes", torch.empty(0, feature_dim))
        self.register_buffer("_task_of", torch.empty(0, dtype=torch.int64), persistent=False)
        for size in task_sizes:
            self._add(size, generator)

    def _add(self, size: int, generator: torch.Generator | None) -> None:
        super()._add(size, generator)
        self.prototypes = torch.cat([self.prototypes, self.prototypes.new_zeros(size, self.feature_dim)])
        self._task_of = torch.cat([self._task_of, self._task_of.new_full((size,), len(self.classifiers) - 1)])

    def by_task(self, features: Tensor) -> list[Tensor]:
        """What every task's classifier gives, (N, classes of the task) each; nothing is routed."""
        return [classifier(features) for classifier in self.classifiers]

    def _logits(self, features: Tensor) -> Tensor:
        logits = torch.cat(self.by_task(features), dim=1)
        likeness = (features @ normalize(self.prototypes).T).masked_fill(~self.prototypes.any(1), -math.inf)
        elsewhere = self._task_of != self._task_of[likeness.argmax(1)][:, None]
        lowered = (logits.amax(1, keepdim=True) - logits.amin(1, keepdim=True)).detach() + _BEHIND
        return torch.where(elsewhere, logits - lowered, logits)

    @classmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of weights, biases and prototypes."""
        found = super().shapes(feature_dim, described)
        return {**found, "prototypes": (sum(described["tasks"]), feature_dim)}

    def plain(self) -> nn.Module:
        """A copy."""
        return Head.plain(self)
