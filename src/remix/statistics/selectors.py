"""Contrastive selectors: a small network per class that spreads the features of its class over a sphere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from remix.statistics.labels import check_labels

__all__ = ["Selectors", "contrastive_loss"]

SLOPE = 0.01  # of the LeakyReLU
BN_EPS = 1e-5
_NORM_EPS = 1e-6


def contrastive_loss(embeddings: Tensor) -> Tensor:
    """mean_i log mean_j exp(cos(z_i, z_j)), j = i included: 1 if all are equal, near 0 if all are orthogonal.

    Args:
        embeddings: z, (..., n, D), of unit length.

    Returns:
        (...).

    """
    return (embeddings @ embeddings.mT).exp().mean(-1).log().mean(-1)


@dataclass(frozen=True, eq=False)
class Selectors:
    """The contrastive networks of K classes, as one batch: 2 x [Linear, BatchNorm, LeakyReLU], then unit length.

    Used in eval mode: BatchNorm normalises by its running statistics. The first axis of each tensor is the class, the
    second the layer: ``bias``, ``scale``, ``shift``, ``mean`` and ``variance`` are (K, 2, D); ``weight`` (K, 2 D, D)
    holds the two matrices one above the other, and maps rows as x @ weight.

    Raises:
        ValueError: if shapes disagree or numbers are not finite.

    """

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

    def to(self, device: torch.device | str) -> Selectors:
        """The same selectors on another device."""
        return Selectors(self.labels, **{name: tensor.to(device) for name, tensor in self.tensors().items()})


def unit_lengths(z: Tensor) -> Tensor:
    """What rows (..., D) are divided by to have length one, (..., 1); a little more than their length, never 0."""
    return torch.linalg.vector_norm(z, dim=-1, keepdim=True) + _NORM_EPS
