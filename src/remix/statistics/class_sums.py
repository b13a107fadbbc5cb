"""Sums of the features of classes: all that an exact head is solved from, the same in whatever order they came."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from remix.networks import Classifier
from remix.statistics.records import check_labels, is_count
from remix.statistics.scatter import SCATTERS, Scatter, ScatterKind
from remix.statistics.statistic import Statistic, StoredItem, Tensors, integers, register_statistic, size_of

__all__ = ["ClassSums"]

_ROWS = 4096  # in double precision at a time
_APART = 10  # steps whose sums are kept by themselves: a scatter of 2,000 features takes 16 MB


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
        mixed: degrees of freedom that the scatter has from images of classes that were taken out since.
        steps: the same sums step by step, oldest first, so that the last ones can be undone; the first of them may be
            of several. Empty if there is one, or they are not kept apart: a Laplace covariance is fitted to all.

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
    mixed: int = 0
    steps: tuple[ClassSums, ...] = ()

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
        if not is_count(self.mixed):
            raise ValueError(f"mixed must be a number of images, got {str(self.mixed)[:60]}")

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
        return max(self.images - len(self.counts) + self.mixed, 1)

    @property
    def parts(self) -> tuple[ClassSums, ...]:
        """What is kept apart: the sums of each step, or all of them as one."""
        return self.steps or (self,)

    def pooled(self) -> Tensor:
        """The scatter of all classes together, as `Scatter.matrix`."""
        return (self.scatter.together() if self.own else self.scatter).matrix()

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
        return self._together([self, other])

    def extended(self, step: ClassSums) -> ClassSums:
        """As `merge`, with the images of a further step, whose sums are kept by themselves too."""
        if self.scatter.kind == "laplace":
            return self.merge(step)
        parts = (*self.parts, step)
        return self.of_parts((parts[0].merge(parts[1]), *parts[2:]) if len(parts) > _APART else parts)

    def of_parts(self, parts: Sequence[ClassSums]) -> ClassSums:
        """Of the images of several, with what was chosen for this one; always the same of the same parts."""
        whole, steps = (self._together(parts), tuple(parts)) if len(parts) > 1 else (parts[0], ())
        return replace(whole, method=self.method, strength=self.strength, scale=self.scale, steps=steps)

    def _together(self, parts: Sequence[ClassSums], labels: Mapping[int, int] | None = None) -> ClassSums:
        """Of the images of all parts, with new labels if these are given: classes with the same one are one, exactly.

        Of n_i images with the means m_i a class has n = sum n_i, m = sum n_i m_i / n, and about m the scatter that they
        have about the m_i and sum n_i (m_i - m)(m_i - m)'.
        """
        given = [label if labels is None else labels[label] for part in parts for label in part.labels]
        classes = sorted(set(given))
        at = torch.searchsorted(torch.tensor(classes), torch.tensor(given))
        counts, means = torch.cat([part.weights() for part in parts]), torch.cat([part.mean for part in parts])
        total = counts.new_zeros(len(classes)).index_add_(0, at, counts)
        mean = means.new_zeros(len(classes), self.dim).index_add_(0, at, counts[:, None] * means) / total[:, None]
        several = torch.bincount(at)[at] > 1
        mean[at[~several]] = means[~several]  # to the last bit
        groups = at if self.own else torch.zeros_like(at)
        scatter = Scatter.nothing(self.scatter.as_dense().kind, self.dim, len(classes) if self.own else 1)
        for part, places in zip(parts, groups.split([len(part.labels) for part in parts]), strict=True):
            scatter.add_(part.scatter.as_dense(), places if self.own else places[:1])
        if bool(several.any()):
            apart = (means - mean[at])[several] * counts[several].sqrt()[:, None]
            scatter += Scatter.of(apart, groups[several], len(classes) if self.own else 1, scatter.kind)
        if self.scatter.kind == "laplace":
            fitted = len(parts) == 1 and not bool(several.any())
            freedom = sum(part.freedom for part in parts)
            scatter = self.scatter if fitted else scatter.as_laplace(freedom, self.scatter)
        numbers, mixed = tuple(map(int, total)), sum(part.mixed for part in parts)
        return replace(self, labels=tuple(classes), counts=numbers, mean=mean, scatter=scatter, mixed=mixed, steps=())

    def tensors(self) -> dict[str, Tensor]:
        """Means and scatter, of each step if these are kept apart."""
        if self.steps:
            return {f"{n}/{name}": t for n, step in enumerate(self.steps) for name, t in step.tensors().items()}
        return {"mean": self.mean, **self.scatter.tensors}

    def describe(self) -> dict[str, Any]:
        """Classes, counts, and what was chosen."""
        chosen = {"kind": self.scatter.kind, "own": self.own, "method": self.method, "strength": self.strength}
        steps = {"steps": [step._images() for step in self.steps]} if self.steps else {}
        return self._images() | chosen | {"scale": self.scale} | steps

    def _images(self) -> dict[str, Any]:
        mixed = {"mixed": self.mixed} if self.mixed else {}
        return {"labels": list(self.labels), "counts": list(self.counts)} | mixed

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> ClassSums:
        """Make them again."""
        steps = described.get("steps")  # earlier versions kept one for all
        if steps is None:
            return cls._part(tensors, described, described)
        if not isinstance(steps, list) or not 1 < len(steps) <= _APART or described["kind"] == "laplace":
            raise ValueError(f"sums of 2 to {_APART} steps must be kept by themselves, got {str(steps)[:60]}")
        parts = [cls._part(tensors.under(f"{n}/"), described, step) for n, step in enumerate(steps)]
        if len({part.dim for part in parts}) > 1:
            raise ValueError("the sums of the steps must be of the same features")
        whole = parts[0].of_parts(parts)
        if whole._images() != {key: described[key] for key in whole._images()}:
            raise ValueError("the sums of the steps must be those of its classes")
        return whole

    @classmethod
    def _part(cls, tensors: Tensors, described: Any, images: Any) -> ClassSums:
        """Of all steps or of one of them, whose classes and counts ``images`` tells."""
        kind, mean = described["kind"], tensors.pop("mean")
        if kind not in SCATTERS or mean.dim() != 2:
            raise ValueError(f"sums have no scatter of the kind {str(kind)[:20]!r}")
        scatter = Scatter(kind, {name: tensors.pop(name) for name in SCATTERS[kind]}, mean.shape[1])
        scatter.check()
        if not bool(torch.isfinite(mean).all()):
            raise ValueError("the means must be finite")
        chosen = {name: described[name] for name in ("own", "method", "strength", "scale")}
        labels, counts = integers(images["labels"]), integers(images["counts"])
        return cls(labels, counts, mean, scatter, **chosen, mixed=images.get("mixed", 0))

    def to(self, device: torch.device | str) -> ClassSums:
        """They stay on the processor: not every device has double precision."""
        return self

    def without(self, labels: Collection[int]) -> tuple[ClassSums | None, str]:
        """The other classes; a scatter of several classes together stays as it is, if one of them is kept."""
        if self.steps:
            found = [step.without(labels) for step in self.steps]
            left = [step for step, _ in found if step is not None]
            return self.of_parts(left) if left else None, next((told for _, told in found if told), "")
        kept = [place for place, label in enumerate(self.labels) if label not in labels]
        if not kept:
            return None, ""
        gone = [count for label, count in zip(self.labels, self.counts, strict=True) if label in labels]
        mixed = 0 if self.scatter.kind == "none" or self.own else sum(gone) - len(gone)
        told = "the scatter of features is of all classes together" if mixed else ""
        rest = replace(
            self,
            labels=tuple(self.labels[place] for place in kept),
            counts=tuple(self.counts[place] for place in kept),
            mean=self.mean[kept],
            scatter=self.scatter.at(kept) if self.own else self.scatter,
            mixed=self.mixed + mixed,
        )
        return rest, told

    def relabelled(self, labels: Mapping[int, int]) -> ClassSums:
        """With other labels; classes that get the same one become one, exactly, or nearly if there is a fit."""
        return self.of_parts([part._together([part], labels) for part in self.parts])

    def stored(self) -> list[StoredItem]:
        """Means, and scatter by its kind."""
        size = size_of([part.mean for part in self.parts])
        rows = [
            StoredItem("class sums", "features", f"means of {self.dim} features of {len(self.labels)} classes", size)
        ]
        if self.scatter.kind != "none":
            whose = "each class" if self.own else "all classes together"
            whose += f", of {len(self.steps)} steps" if self.steps else ""
            size = size_of([tensor for part in self.parts for tensor in part.scatter.tensors.values()])
            rows.append(StoredItem(f"{self.scatter.kind} scatter", "features", f"about the means of {whose}", size))
        return rows

    def check(self, network: Classifier) -> None:
        """Labels must be those of the network."""
        if max(self.labels) >= network.head.num_classes:
            raise ValueError("the memory is of another network: its classes are not the network's")
