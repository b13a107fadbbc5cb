"""Sums of the features of classes: all that an exact head is solved from, the same in whatever order they came."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from remix.networks import Backbone
from remix.statistics.records import check_labels, is_count
from remix.statistics.scatter import SCATTERS, Scatter, ScatterKind
from remix.statistics.statistic import Statistic, StoredItem, Tensors, integers, register_statistic, size_of

__all__ = ["ClassSums"]

_ROWS = 4096  # in double precision at a time


@register_statistic
@dataclass(frozen=True, eq=False)
class ClassSums(Statistic):
    """Numbers of images, means of their features and their scatter about these means, and what was chosen once.

    Everything is in float64 and stays on the processor: heads are solved there, and sums that are rounded would not be
    the same in every order.

    Attributes:
        labels: the K classes, ascending.
        counts: images of each.
        mean: (K, D).
        scatter: about the means, of all classes together.
        own: of each class by itself instead, in their order.
        method: whose head is solved from them.
        strength: of its shrinkage or penalty, chosen with the first classes.
        scale: of its logits, chosen with them.

    Raises:
        ValueError: if shapes disagree, or numbers are not what they are said to be.

    """

    name: ClassVar[str] = "sums"
    precise: ClassVar[bool] = True
    labels: tuple[int, ...]
    counts: tuple[int, ...]
    mean: Tensor
    scatter: Scatter
    own: bool = False
    method: str = ""
    strength: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_labels(self.labels)
        size = len(self.labels)
        if len(self.counts) != size or not all(is_count(count, 1) for count in self.counts):
            raise ValueError(f"counts must be {size} positive numbers of images, got {str(self.counts)[:60]}")
        shape = (size, self.scatter.dim)
        if self.mean.shape != shape or self.mean.dtype != torch.float64:
            raise ValueError(f"the means must be float64 {shape}, got {tuple(self.mean.shape)} {self.mean.dtype}")
        groups = {len(tensor) for tensor in self.scatter.tensors.values()}
        if type(self.own) is not bool or not groups <= {size if self.own else 1}:
            raise ValueError(f"a scatter must be that of all {size} classes or of each, got {groups} of them")
        numbers = (self.strength, self.scale)
        if any(type(number) is not float or not 0 <= number < math.inf for number in numbers) or not self.scale:
            raise ValueError(f"strength and scale must be finite and not negative, got {str(numbers)[:60]}")
        if not isinstance(self.method, str) or len(self.method) > 60:
            raise ValueError(f"sums are those of a method, got {str(self.method)[:60]!r}")

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor, kind: ScatterKind, own: bool = False) -> ClassSums:
        """Of features (N, D) of images with labels (N,).

        Args:
            rows: features.
            labels: of their classes.
            kind: of scatter; "laplace" is fitted to it.
            own: whether every class has a scatter of its own.

        """
        rows, labels = rows.detach().cpu(), labels.cpu()
        classes, which, counts = labels.unique(return_inverse=True, return_counts=True)
        parts = list(zip(rows.split(_ROWS), which.split(_ROWS), strict=True))
        mean = torch.zeros(len(classes), rows.shape[1], dtype=torch.float64)
        for part, at in parts:
            mean.index_add_(0, at, part.double())
        mean /= counts[:, None]
        groups = len(classes) if own else 1
        scatter = None
        for part, at in parts:
            more = Scatter.of(part.double() - mean[at], at if own else torch.zeros_like(at), groups, kind)
            scatter = more if scatter is None else scatter + more
        assert scatter is not None, "a step has images"
        if kind == "laplace":
            scatter = scatter.as_laplace(max(len(rows) - len(classes), 1))
        return cls(tuple(classes.tolist()), tuple(counts.tolist()), mean, scatter, own)

    @property
    def dim(self) -> int:
        """D."""
        return self.mean.shape[1]

    @property
    def images(self) -> int:
        """Of all classes."""
        return sum(self.counts)

    @property
    def freedom(self) -> int:
        """Images that are not used up by the means: what a scatter of all classes is divided by; at least 1."""
        return max(self.images - len(self.counts), 1)

    def weights(self) -> Tensor:
        """The counts as numbers (K,)."""
        return torch.tensor(self.counts, dtype=torch.float64)

    def rows(self, labels: Tensor | Sequence[int]) -> Tensor:
        """Where classes stand."""
        return torch.searchsorted(torch.tensor(self.labels), torch.as_tensor(labels, dtype=torch.int64).cpu())

    # --- as a statistic of a memory ---

    def merge(self, other: ClassSums, classes: tuple[int, int] = (0, 0)) -> ClassSums:
        """Of the images of both, as if they had come together; a class may be in both. What was chosen is this one's.

        Args:
            other: further images; their scatter is of the same kind, or dense.
            classes: not needed here.

        """
        labels = tuple(sorted({*self.labels, *other.labels}))
        counts = self.mean.new_zeros(2, len(labels))
        means = self.mean.new_zeros(2, len(labels), self.dim)
        places = []
        for part, one in enumerate((self, other)):
            places.append(torch.searchsorted(torch.tensor(labels), torch.tensor(one.labels)))
            counts[part, places[part]], means[part, places[part]] = one.weights(), one.mean
        total = counts.sum(0)
        mean = (counts[:, :, None] * means).sum(0) / total[:, None]
        both = counts.prod(0).nonzero()[:, 0]
        apart = (means[1] - means[0])[both] * (counts.prod(0) / total)[both].sqrt()[:, None]
        groups = len(labels) if self.own else 1
        mine, theirs = self.scatter.as_dense(), other.scatter.as_dense()
        if self.own:
            mine, theirs = mine.placed(places[0], groups), theirs.placed(places[1], groups)
        scatter = mine + theirs
        if len(both):  # a class in both varies between its two means as well
            scatter += Scatter.of(apart, both if self.own else torch.zeros_like(both), groups, scatter.kind)
        if self.scatter.kind == "laplace":
            scatter = scatter.as_laplace(self.freedom + other.freedom, self.scatter)
        return replace(self, labels=labels, counts=tuple(map(int, total)), mean=mean, scatter=scatter)

    def tensors(self) -> dict[str, Tensor]:
        """Means and scatter."""
        return {"mean": self.mean, **self.scatter.tensors}

    def describe(self) -> dict[str, Any]:
        """Classes, counts, and what was chosen."""
        return {
            "labels": list(self.labels), "counts": list(self.counts), "kind": self.scatter.kind, "own": self.own,
            "method": self.method, "strength": self.strength, "scale": self.scale,
        }  # fmt: skip

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> ClassSums:
        """Make them again."""
        kind, mean = described["kind"], tensors.pop("mean")
        if kind not in SCATTERS or mean.dim() != 2:
            raise ValueError(f"sums have no scatter of the kind {str(kind)[:20]!r}")
        scatter = Scatter(kind, {name: tensors.pop(name) for name in SCATTERS[kind]}, mean.shape[1])
        scatter.check()
        if not bool(torch.isfinite(mean).all()):
            raise ValueError("the means must be finite")
        chosen = {name: described[name] for name in ("own", "method", "strength", "scale")}
        return cls(integers(described["labels"]), integers(described["counts"]), mean, scatter, **chosen)

    def to(self, device: torch.device | str) -> ClassSums:
        """They stay on the processor: not every device has double precision."""
        return self

    def without(self, labels: Collection[int]) -> tuple[ClassSums | None, str]:
        """The other classes; a scatter of all classes together stays as it is."""
        kept = [place for place, label in enumerate(self.labels) if label not in labels]
        if not kept:
            return None, ""
        told = "" if self.scatter.kind == "none" or self.own else "the scatter of features is of all classes together"
        rest = replace(
            self,
            labels=tuple(self.labels[place] for place in kept),
            counts=tuple(self.counts[place] for place in kept),
            mean=self.mean[kept],
            scatter=self.scatter.at(kept) if self.own else self.scatter,
        )
        return rest, told

    def stored(self) -> list[StoredItem]:
        """Means, and scatter by its kind."""
        size = size_of([self.mean])
        rows = [
            StoredItem("class sums", "features", f"means of {self.dim} features of {len(self.labels)} classes", size)
        ]
        if self.scatter.kind != "none":
            whose = "each class" if self.own else "all classes together"
            size = size_of(list(self.scatter.tensors.values()))
            rows.append(StoredItem(f"{self.scatter.kind} scatter", "features", f"about the means of {whose}", size))
        return rows

    def check(self, backbone: Backbone, classes: int) -> None:
        """Labels must be those of the network."""
        if max(self.labels) >= classes:
            raise ValueError("the memory is of another network: its classes are not the network's")
