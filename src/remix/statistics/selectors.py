"""Contrastive selectors, a small network per class that spreads its features over a sphere, and choosing with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from remix.networks import Classifier
from remix.statistics.class_gaussians import ClassGaussians, check_features
from remix.statistics.records import check_labels
from remix.statistics.statistic import Statistic, StoredItem, Tensors, integers, register_statistic, size_of

__all__ = ["Score", "Selectors", "compensate", "contrastive_loss", "crowding", "select_features", "select_from_pool"]

SLOPE = 0.01  # of the LeakyReLU
BN_EPS = 1e-5
_NORM_EPS = 1e-6
_STEPS = 40  # a class's features are chosen in about so many steps
_CANDIDATES = 2  # candidates per chosen feature

Score = Literal["log-mean-exp", "mean"]
"""Of the cosines between a candidate and the features chosen so far."""


def contrastive_loss(embeddings: Tensor) -> Tensor:
    """mean_i log mean_j exp(cos(z_i, z_j)), j = i included: 1 if all are equal, near 0 if all are orthogonal.

    Args:
        embeddings: z, (..., n, D), of unit length.

    Returns:
        (...).

    """
    return (embeddings @ embeddings.mT).exp().mean(-1).log().mean(-1)


@register_statistic
@dataclass(frozen=True, eq=False)
class Selectors(Statistic):
    """The contrastive networks of K classes, as one batch: 2 x [Linear, BatchNorm, LeakyReLU], then unit length.

    Used in eval mode: BatchNorm normalises by its running statistics. The first axis of each tensor is the class, the
    second the layer: ``bias``, ``scale``, ``shift``, ``mean`` and ``variance`` are (K, 2, D); ``weight`` (K, 2 D, D)
    holds the two matrices one above the other, and maps rows as x @ weight.

    Raises:
        ValueError: if shapes disagree or numbers are not finite.

    """

    name: ClassVar[str] = "selectors"
    labels: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    scale: Tensor
    shift: Tensor
    mean: Tensor
    variance: Tensor

    def __post_init__(self) -> None:
        size = len(self.labels)
        check_labels(self.labels)
        dim = self.weight.shape[-1]
        for name, value in self.tensors().items():
            shape = (size, 2 * dim, dim) if name == "weight" else (size, 2, dim)
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != shape:
                raise ValueError(f"{name} of the selectors must be a floating-point tensor of shape {shape}")
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} of the selectors must be finite")
        if not bool((self.variance >= 0).all()):
            raise ValueError("variance of the selectors must not be negative")

    @property
    def dim(self) -> int:
        """D."""
        return self.weight.shape[-1]

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name: what to save."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "labels"}

    def embed(self, label: int, features: Tensor) -> Tensor:
        """Features (n, D) of one class -> unit vectors (n, D).

        Raises:
            ValueError: for a class without a selector.

        """
        if label not in self.labels:
            raise ValueError(f"there is no selector for class {label}; there are {len(self)}: {self.labels[:20]}")
        k = self.labels.index(label)
        z = features
        for layer in range(2):
            z = torch.addmm(self.bias[k, layer], z, self.weight[k, layer * self.dim : (layer + 1) * self.dim])
            ratio = self.scale[k, layer] * (self.variance[k, layer] + BN_EPS).rsqrt()
            z = leaky_relu((z - self.mean[k, layer]) * ratio + self.shift[k, layer], SLOPE)
        return z / unit_lengths(z)

    def replace(self, other: Selectors) -> Selectors:
        """These selectors with those of ``other`` added; a class that both have is taken from ``other``.

        Raises:
            ValueError: if the features differ in length.

        """
        if other.dim != self.dim:
            raise ValueError(f"the features have length {self.dim} here and {other.dim} in the other")
        sources = {label: (self, i) for i, label in enumerate(self.labels)}
        sources |= {label: (other, i) for i, label in enumerate(other.labels)}
        return Selectors.gather(sources)

    @staticmethod
    def gather(sources: Mapping[int, tuple[Selectors, int]]) -> Selectors:
        """Selectors picked from others: by class, whose and the how-manieth."""
        labels: Sequence[int] = sorted(sources)
        picked = [{name: t[sources[c][1]] for name, t in sources[c][0].tensors().items()} for c in labels]
        stacked = {name: torch.stack([one[name].to(like) for one in picked]) for name, like in picked[0].items()}
        return Selectors(tuple(labels), **stacked)

    def describe(self) -> dict[str, Any]:
        """The labels."""
        return {"labels": list(self.labels)}

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> Selectors:
        """Make them again."""
        names = [field.name for field in fields(cls) if field.name != "labels"]
        return cls(integers(described["labels"]), **{name: tensors.pop(name) for name in names})

    def merge(self, other: Selectors, classes: tuple[int, int]) -> Selectors:
        """As `replace`."""
        return self.replace(other)

    def without(self, labels: Collection[int]) -> tuple[Selectors | None, str]:
        """The other classes."""
        kept = {label: (self, place) for place, label in enumerate(self.labels) if label not in labels}
        return Selectors.gather(kept) if kept else None, ""

    def relabelled(self, labels: Mapping[int, int]) -> Selectors:
        """The same classes under other labels, in the same order."""
        return replace(self, labels=tuple(labels[label] for label in self.labels))

    def stored(self) -> list[StoredItem]:
        """One row."""
        detail = f"a network of 2 layers of {self.dim} for each of {len(self)} classes"
        return [StoredItem("selectors", "pooled features", detail, size_of(list(self.tensors().values())))]

    def check(self, network: Classifier) -> None:
        """Features and labels must be those of the network."""
        check_features(self.dim, self.labels, network)

    def to(self, device: torch.device | str) -> Selectors:
        """The same selectors on another device."""
        return Selectors(self.labels, **{name: tensor.to(device) for name, tensor in self.tensors().items()})


def unit_lengths(z: Tensor) -> Tensor:
    """What rows (..., D) are divided by to have length one, (..., 1); a little more than their length, never 0."""
    return torch.linalg.vector_norm(z, dim=-1, keepdim=True) + _NORM_EPS


def select_features(
    gaussians: ClassGaussians,
    selectors: Selectors,
    label: int,
    count: int,
    generator: torch.Generator | None = None,
    score: Score = "log-mean-exp",
) -> Tensor:
    """Features (count, D) of one class, chosen to differ from each other, with the class's mean and spread.

    The first max(count // 40, 2) are plain draws from the class Gaussian. Then in every step twice as many candidates
    are drawn, and the half least crowded among the features chosen so far is kept (`crowding`). At the end the choice
    is given back the mean and standard deviation of the class, which choosing outliers has changed (`compensate`).

    Raises:
        ValueError: for a class without Gaussian or selector, or a count below 1.

    """
    _check_count(count)
    place = int(gaussians.rows([label])[0])
    step = max(count // _STEPS, 2)
    chosen = gaussians.sample([label] * min(step, count), generator)
    embedded = selectors.embed(label, chosen)
    while len(chosen) < count:
        wanted = min(step, count - len(chosen))
        candidates = gaussians.sample([label] * (_CANDIDATES * step), generator)
        places = selectors.embed(label, candidates)
        kept = crowding(places, embedded, score).topk(wanted, largest=False).indices
        chosen, embedded = torch.cat([chosen, candidates[kept]]), torch.cat([embedded, places[kept]])
    return compensate(chosen, gaussians.mean[place], gaussians.std[place])


def select_from_pool(
    gaussians: ClassGaussians,
    selectors: Selectors,
    label: int,
    count: int,
    generator: torch.Generator | None = None,
    score: Score = "log-mean-exp",
) -> Tensor:
    """Features (count, D) of one class, chosen one by one from a pool of twice as many, as they were drawn.

    The first is any; each further one is the least crowded among those chosen so far (`crowding`).

    Raises:
        ValueError: as `select_features`.

    """
    _check_count(count)
    pool = gaussians.sample([label] * (_CANDIDATES * count), generator)
    embedded = selectors.embed(label, pool)
    # Crowding grows with the sum over the chosen ones, to which each of them adds once.
    sums, chosen = embedded.new_zeros(len(pool)), [0]
    while len(chosen) < count:
        cosines = embedded @ embedded[chosen[-1]]
        sums += cosines.exp() if score == "log-mean-exp" else cosines
        sums[chosen[-1]] = torch.inf
        chosen.append(int(sums.argmin()))
    return pool[chosen]


def _check_count(count: int) -> None:
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")


def crowding(candidates: Tensor, chosen: Tensor, score: Score = "log-mean-exp") -> Tensor:
    """log mean_j exp(cos(candidate, chosen_j)) of unit vectors (m, D) and (n, D): (m,), low where there is room.

    With the score "mean" the mean of the cosines.
    """
    cosines = candidates @ chosen.mT
    return cosines.mean(1) if score == "mean" else cosines.exp().mean(1).log()


def compensate(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Features (n, D) moved and stretched to the given mean (D,) and (unbiased) standard deviation (D,).

    A single feature has no spread and is returned as it is. A coordinate in which all features agree gets the mean.
    """
    if len(features) == 1:
        return features
    centred = features - features.mean(0)
    spread = centred.square().sum(0).div(len(features) - 1).sqrt()
    return centred * (std / spread.clamp_min(torch.finfo(spread.dtype).tiny)) + mean
