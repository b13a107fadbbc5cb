"""One diagonal Gaussian of pooled features per class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.statistics.labels import check_labels

__all__ = ["ClassGaussians"]


@dataclass(frozen=True, eq=False)
class ClassGaussians:
    """Mean and population standard deviation of the pooled features of K classes.

    Attributes:
        labels: the K classes, ascending.
        counts: how many samples each was measured on.
        mean: (K, D).
        std: (K, D), not negative.

    Raises:
        ValueError: if shapes disagree, labels are not ascending, or numbers are not finite.

    """

    labels: tuple[int, ...]
    counts: tuple[int, ...]
    mean: Tensor
    std: Tensor

    def __post_init__(self) -> None:
        size = len(self.labels)
        check_labels(self.labels)
        if len(self.counts) != size or min(self.counts) < 1:
            raise ValueError(f"counts must be {size} positive numbers, got {self.counts}")
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

    @property
    def dim(self) -> int:
        """D."""
        return self.mean.shape[1]

    def __len__(self) -> int:
        return len(self.labels)

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
            ValueError: for a class that is not here.

        """
        places = self.rows(labels)
        noise = torch.randn(len(places), self.dim, generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean[places] + self.std[places] * noise

    def replace(self, other: ClassGaussians) -> ClassGaussians:
        """These classes with those of ``other`` added; a class that both have is taken from ``other``.

        Raises:
            ValueError: if the features differ in length.

        """
        if other.dim != self.dim:
            raise ValueError(f"the features have length {self.dim} here and {other.dim} in the other")
        kept = [i for i, label in enumerate(self.labels) if label not in set(other.labels)]
        entries = [(self.labels[i], self.counts[i], self.mean[i], self.std[i]) for i in kept]
        entries += list(zip(other.labels, other.counts, other.mean.to(self.mean), other.std.to(self.std), strict=True))
        labels, counts, means, stds = zip(*sorted(entries, key=lambda entry: entry[0]), strict=True)
        return ClassGaussians(labels, counts, torch.stack(means), torch.stack(stds))

    def to(self, device: torch.device | str) -> ClassGaussians:
        """The same classes on another device."""
        return ClassGaussians(self.labels, self.counts, self.mean.to(device), self.std.to(device))


def _listed(labels: Sequence[int], limit: int = 20) -> str:
    shown = ", ".join(map(str, labels[:limit]))
    return shown if len(labels) <= limit else f"{shown}, ... ({len(labels)} in all)"
