"""One Gaussian of pooled features per class: what it is, and how it is measured in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from remix.laplace.normal import standard_normal
from remix.networks import Backbone, Classifier
from remix.networks.hooks import Point
from remix.statistics.class_laplace import chain_correlations, check_chains, fit_chains
from remix.statistics.drift import Drift
from remix.statistics.measure import Batch, run_meters
from remix.statistics.records import check_labels, is_count
from remix.statistics.statistic import Statistic, StoredItem, Tensors, integers, register_statistic, size_of

__all__ = ["ClassGaussians", "ClassMeter", "as_correlation", "check_features", "class_gaussians", "measure_classes"]

_JITTER = 1e-4  # added to a correlation of 1: matrices of few samples are singular


@register_statistic
@dataclass(frozen=True, eq=False)
class ClassGaussians(Statistic):
    """Mean, population standard deviation and, if wanted, correlation of the pooled features of K classes.

    Attributes:
        labels: the K classes, ascending.
        counts: how many samples each was measured on.
        mean: (K, D).
        std: (K, D), not negative.
        correlation: (K, D, D), with a diagonal of 1; None for features taken as uncorrelated.
        chains: (K, 2, D), loadings and coordinates of Laplace covariances in place of matrices (`compact` makes them).

    Raises:
        ValueError: if shapes disagree, labels are not ascending, or numbers are not finite.

    """

    name: ClassVar[str] = "gaussians"
    labels: tuple[int, ...]
    counts: tuple[int, ...]
    mean: Tensor
    std: Tensor
    correlation: Tensor | None = None
    chains: Tensor | None = None

    def __post_init__(self) -> None:
        size = len(self.labels)
        check_labels(self.labels)
        if len(self.counts) != size or not all(is_count(count, 1) for count in self.counts):
            raise ValueError(f"counts must be {size} positive numbers of images, got {str(self.counts)[:60]}")
        for name, value in (("mean", self.mean), ("std", self.std)):
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() != 2 or len(value) != size:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"{name} must be a floating-point tensor ({size}, D), got {shape}")
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} must be finite")
        if self.mean.shape != self.std.shape:
            raise ValueError(f"mean {tuple(self.mean.shape)} and std {tuple(self.std.shape)} must have one shape")
        if bool((self.std < 0).any()):
            raise ValueError("std must not be negative")
        if self.correlation is not None:
            self._check_correlation(self.correlation)
        if self.chains is not None:
            check_chains(self.chains, size, self.dim)
            if self.correlation is not None:
                raise ValueError("correlations are kept as matrices or as chains, not as both")

    def _check_correlation(self, correlation: Tensor) -> None:
        shape = (*self.mean.shape, self.dim)
        if not isinstance(correlation, Tensor) or correlation.shape != shape or correlation.dtype != self.mean.dtype:
            raise ValueError(f"correlation must be {shape} of the same dtype as the mean")
        if not bool((correlation.abs() <= 1 + 1e-3).all()):  # false for NaN
            raise ValueError("correlations must be from -1 to 1")
        if not torch.allclose(correlation, correlation.mT, atol=1e-3):
            raise ValueError("correlation must be symmetric")

    @property
    def dim(self) -> int:
        """D."""
        return self.mean.shape[1]

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def correlations(self) -> Tensor | None:
        """(K, D, D), however they are kept; None for features taken as uncorrelated."""
        return self.correlation if self.chains is None else chain_correlations(self.chains)

    def compact(self) -> ClassGaussians:
        """With a Laplace covariance per class in place of its matrix."""
        if self.correlation is None:
            return self
        return replace(self, correlation=None, chains=fit_chains(self.correlation, self.counts))

    def rows(self, labels: Tensor | Iterable[int]) -> Tensor:
        """Where the given labels (n,) stand in ``mean`` and ``std``, (n,).

        Raises:
            ValueError: for a class that is not here.

        """
        wanted = torch.as_tensor(labels if isinstance(labels, Tensor) else list(labels), dtype=torch.int64).cpu()
        known = torch.tensor(self.labels)
        places = torch.searchsorted(known, wanted).clamp_max(len(known) - 1)
        missing = wanted[known[places] != wanted]
        if len(missing):
            raise ValueError(f"there is no class {int(missing[0])}; known are {_listed(self.labels)}")
        return places.to(self.mean.device)

    def sample(self, labels: Tensor | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
        """One feature (n, D) per label (n,), drawn from the class's Gaussian.

        Raises:
            ValueError: for a class that is not here, or with correlations that no features can have.

        """
        places = self.rows(labels)
        noise = standard_normal((len(places), self.dim), generator, self.mean.dtype, self.mean.device)
        if self._roots is not None:
            for place in places.unique():
                mine = places == place
                noise[mine] = noise[mine] @ self._roots[place].T
        return self.mean[places] + self.std[places] * noise

    @cached_property
    def _roots(self) -> Tensor | None:
        """Of the correlations: L with L L' = R."""
        if self.correlations is None:
            return None
        identity = torch.eye(self.dim, dtype=self.mean.dtype, device=self.mean.device)
        roots, failed = torch.linalg.cholesky_ex(self.correlations + _JITTER * identity)
        if bool(failed.any()):
            label = self.labels[int(failed.nonzero()[0, 0])]
            raise ValueError(f"the correlations of class {label} are none: the matrix has negative eigenvalues")
        return roots

    def moved(self, drift: Drift) -> ClassGaussians:
        """The Gaussians of features that have drifted; what the map leaves of that is added to their covariances."""
        identity = torch.eye(self.dim, dtype=self.mean.dtype, device=self.mean.device)
        correlation = identity.expand(len(self), -1, -1) if self.correlations is None else self.correlations
        spread = self.std.double().unsqueeze(2) * drift.matrix.to(self.mean.device, torch.float64)
        covariance = spread.mT @ correlation.double() @ spread
        if drift.residual is not None:
            covariance = covariance + drift.residual.to(covariance)
        std = covariance.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
        found = None if self.correlations is None else as_correlation(covariance).to(self.mean)
        return ClassGaussians(self.labels, self.counts, drift(self.mean), std.to(self.std), found)

    def replace(self, other: ClassGaussians) -> ClassGaussians:
        """These classes with those of ``other`` added; a class that both have is taken from ``other``.

        Correlations are kept where both have them.

        Raises:
            ValueError: if the features differ in length.

        """
        if other.dim != self.dim:
            raise ValueError(f"the features have length {self.dim} here and {other.dim} in the other")
        kept = [i for i, label in enumerate(self.labels) if label not in set(other.labels)]
        labels = [*(self.labels[i] for i in kept), *other.labels]
        order = sorted(range(len(labels)), key=labels.__getitem__)
        counts = [*(self.counts[i] for i in kept), *other.counts]

        def joined(mine: Tensor, others: Tensor) -> Tensor:
            return torch.cat([mine[kept], others.to(mine)])[order]

        correlation = None
        if self.correlations is not None and other.correlations is not None:
            correlation = joined(self.correlations, other.correlations)
        mean, std = joined(self.mean, other.mean), joined(self.std, other.std)
        return ClassGaussians(tuple(labels[i] for i in order), tuple(counts[i] for i in order), mean, std, correlation)

    # --- as a statistic of a memory ---

    def tensors(self) -> dict[str, Tensor]:
        """Mean, standard deviation and perhaps correlation."""
        more = {"correlation": self.correlation, "chains": self.chains}
        kept = {name: tensor for name, tensor in more.items() if tensor is not None}
        return {"mean": self.mean, "std": self.std, **kept}

    def describe(self) -> dict[str, Any]:
        """Labels and counts."""
        found = {"labels": list(self.labels), "counts": list(self.counts)}
        if self.chains is not None:
            return found | {"chains": True}
        return found if self.correlation is None else found | {"correlated": True}

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> ClassGaussians:
        """Make them again."""
        mean, std = tensors.pop("mean"), tensors.pop("std")
        correlation = tensors.pop("correlation") if described.get("correlated") else None
        chains = tensors.pop("chains") if described.get("chains") else None
        return cls(integers(described["labels"]), integers(described["counts"]), mean, std, correlation, chains)

    def merge(self, other: ClassGaussians, classes: tuple[int, int]) -> ClassGaussians:
        """As `replace`."""
        return self.replace(other)

    def without(self, labels: Collection[int]) -> tuple[ClassGaussians | None, str]:
        """The other classes."""
        kept = [place for place, label in enumerate(self.labels) if label not in labels]
        if not kept:
            return None, ""
        labels, counts = tuple(self.labels[i] for i in kept), tuple(self.counts[i] for i in kept)
        return ClassGaussians(labels, counts, **{name: tensor[kept] for name, tensor in self.tensors().items()}), ""

    def relabelled(self, labels: Mapping[int, int]) -> ClassGaussians:
        """The same classes under other labels, in the same order."""
        return replace(self, labels=tuple(labels[label] for label in self.labels))

    def stored(self) -> list[StoredItem]:
        """One row."""
        words = "mean and std" if self.correlation is None else "mean, std and correlation"
        words = words if self.chains is None else "mean, std and Laplace correlation"
        detail = f"{words} of {self.dim} features of {len(self)} classes"
        return [StoredItem("class Gaussians", "pooled features", detail, size_of(list(self.tensors().values())))]

    def check(self, network: Classifier) -> None:
        """Features and labels must be those of the network."""
        check_features(self.dim, self.labels, network)

    def to(self, device: torch.device | str) -> ClassGaussians:
        """The same classes on another device."""
        moved = {name: tensor.to(device) for name, tensor in self.tensors().items()}
        return ClassGaussians(self.labels, self.counts, **moved)


def check_features(dim: int, labels: Sequence[int], network: Classifier) -> None:
    """Whether statistics are of features of a network, pooled or as its head takes them. Raises ValueError if not."""
    if dim not in (network.backbone.feature_dim, network.head.feature_dim) or max(labels) >= network.head.num_classes:
        raise ValueError("the memory is of another network: its features or classes are not the network's")


def as_correlation(covariance: Tensor) -> Tensor:
    """Of covariances (..., D, D). A feature that does not vary is uncorrelated with all others."""
    std = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scale = torch.where(std > 0, 1 / std, torch.zeros_like(std))
    correlation = covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    correlation.diagonal(dim1=-2, dim2=-1).fill_(1)
    return correlation.clamp(-1, 1)


def _listed(labels: Sequence[int], limit: int = 20) -> str:
    shown = ", ".join(map(str, labels[:limit]))
    return shown if len(labels) <= limit else f"{shown}, ... ({len(labels)} in all)"


def measure_classes(backbone: Backbone, batches: Iterable[Batch]) -> ClassGaussians:
    """The Gaussians of a backbone's pooled features, from pairs of images and labels.

    Raises:
        ValueError: see `run_meters`; and for batches without labels.

    """
    meter = ClassMeter(backbone.point(-1, "output"), backbone.pool)
    run_meters(backbone, batches, [meter])
    return meter.gaussians()


def class_gaussians(features: Tensor, labels: Tensor, correlated: bool = False) -> ClassGaussians:
    """The Gaussians of features (N, D) with labels (N,), on the device of the features, perhaps with correlations.

    A class with one sample has no spread of its own: it is given the mean variance of the classes with more samples; if
    there are none, the variance of the class means; and if it is the only class, 0.

    Raises:
        ValueError: for wrong shapes, labels that are not integers from 0 up, or features that are not finite.

    """
    moments = _ClassMoments()
    moments.update(features, labels)
    found = moments.gaussians()
    if not correlated:
        return found
    parts = [features[(labels == label).to(features.device)].cpu().double() for label in found.labels]
    covariances = [torch.cov(part.T, correction=0).reshape(found.dim, found.dim) for part in parts]
    return replace(found, correlation=as_correlation(torch.stack(covariances)).to(found.mean))


class ClassMeter:
    """A meter of pooled features by class.

    Args:
        point: where the feature map is.
        pool: from the feature map to features (N, D).
        keep_features: also keep the features themselves, in memory, for training selectors.
        correlated: whether the Gaussians have correlations; then the features are kept in memory as well.

    """

    def __init__(
        self,
        point: str | Point,
        pool: Callable[[Tensor], Tensor],
        *,
        keep_features: bool = False,
        correlated: bool = False,
    ) -> None:
        self.points = [Point.parse(point)]
        self._pool, self._keep, self._correlated = pool, keep_features or correlated, correlated
        self._moments = _ClassMoments()
        self._features: list[tuple[Tensor, Tensor]] = []

    def update(self, captured: Mapping[Point, Tensor], labels: Tensor | None) -> None:
        """Take in one batch."""
        if labels is None:
            raise ValueError("class Gaussians need labels: give batches of (images, labels)")
        features = self._pool(captured[self.points[0]]).detach()
        self._moments.update(features, labels)
        if self._keep:
            self._features.append((features, labels))

    def gaussians(self) -> ClassGaussians:
        """The Gaussians of what was seen so far. Raises ValueError if nothing was."""
        found = self._moments.gaussians()
        if not self._correlated:
            return found
        parts = torch.cat([part for part, _ in self._features]), torch.cat([part for _, part in self._features])
        return replace(found, correlation=class_gaussians(*parts, correlated=True).correlation)

    def features(self) -> dict[int, Tensor]:
        """By class, the features (n, D) that were kept."""
        if not self._features:
            raise ValueError("no features were kept: make the meter with keep_features=True and run it")
        features = torch.cat([part for part, _ in self._features])
        labels = torch.cat([part for _, part in self._features])
        return {int(label): features[(labels == label).to(features.device)] for label in labels.unique()}


class _ClassMoments:
    """Count, mean and scatter per class in float64, merged batch by batch; rows are in order of first appearance."""

    def __init__(self) -> None:
        self.labels: dict[int, int] = {}
        self.count = torch.zeros(0, dtype=torch.float64)
        self.mean = torch.zeros(0, 0, dtype=torch.float64)
        self.scatter = torch.zeros(0, 0, dtype=torch.float64)
        self.dtype, self.device = torch.float32, torch.device("cpu")

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor) -> None:
        self._check(features, labels)
        self.dtype, self.device = torch.promote_types(features.dtype, torch.float32), features.device
        rows = features.detach().to("cpu", torch.float64)
        classes, which, counts = labels.cpu().unique(return_inverse=True, return_counts=True)
        count = counts.double()[:, None]
        mean = torch.zeros(len(classes), rows.shape[1], dtype=torch.float64).index_add_(0, which, rows) / count
        scatter = torch.zeros_like(mean).index_add_(0, which, (rows - mean[which]).square())
        places = self._places(classes.tolist(), rows.shape[1])
        before, shift = self.count[places][:, None], mean - self.mean[places]
        total = before + count
        self.scatter[places] += scatter + shift.square() * before * count / total
        self.mean[places] += shift * count / total
        self.count[places] = total[:, 0]

    def _check(self, features: Tensor, labels: Tensor) -> None:
        if features.dim() != 2 or not features.is_floating_point():
            raise ValueError(f"features must be floating point (N, D), got {tuple(features.shape)} {features.dtype}")
        if self.labels and features.shape[1] != self.mean.shape[1]:
            raise ValueError(f"features changed their length from {self.mean.shape[1]} to {features.shape[1]}")
        if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(f"labels must be {len(features)} integers, got {tuple(labels.shape)} {labels.dtype}")
        if len(labels) and int(labels.min()) < 0:
            raise ValueError(f"labels must not be negative, got {int(labels.min())}")
        if not bool(torch.isfinite(features).all()):
            raise ValueError("features must be finite, but hold NaN or infinite values")

    def _places(self, classes: list[int], dim: int) -> Tensor:
        new = [label for label in classes if label not in self.labels]
        self.labels.update({label: len(self.labels) + i for i, label in enumerate(new)})
        if new:
            zeros = torch.zeros(len(new), dim, dtype=torch.float64)
            self.count = torch.cat([self.count, zeros[:, 0]])
            self.mean = torch.cat([self.mean.reshape(-1, dim), zeros])
            self.scatter = torch.cat([self.scatter.reshape(-1, dim), zeros])
        return torch.tensor([self.labels[label] for label in classes], dtype=torch.int64)

    def gaussians(self) -> ClassGaussians:
        if not self.labels:
            raise ValueError("no features were seen, so there is no class to describe")
        variance = self.scatter / self.count[:, None]
        single = self.count == 1
        if bool(single.any()):
            variance[single] = variance[~single].mean(0) if not bool(single.all()) else self.mean.var(0, correction=0)
        labels = sorted(self.labels)
        order = torch.tensor([self.labels[label] for label in labels])
        counts = tuple(int(count) for count in self.count[order])
        mean, std = (tensor.to(self.dtype).to(self.device) for tensor in (self.mean[order], variance[order].sqrt()))
        return ClassGaussians(tuple(labels), counts, mean, std)
