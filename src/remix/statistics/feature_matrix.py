"""How much the answers of a head change with each direction of features: the empirical feature matrix of EFC."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from remix.networks import Classifier
from remix.statistics.statistic import Statistic, StoredItem, Tensors, register_statistic, size_of

__all__ = ["FeatureMatrix", "feature_matrix"]


@register_statistic
@dataclass(frozen=True, eq=False)
class FeatureMatrix(Statistic):
    """One matrix (D, D) over features, of the images of the last task.

    Raises:
        ValueError: if it is not finite, symmetric, or has a negative diagonal.

    """

    name: ClassVar[str] = "feature-matrix"
    matrix: Tensor

    def __post_init__(self) -> None:
        matrix = self.matrix
        if not isinstance(matrix, Tensor) or matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError("a feature matrix must be (D, D)")
        if not matrix.is_floating_point() or not bool(torch.isfinite(matrix).all()):
            raise ValueError("a feature matrix must be finite")
        off = 1e-3 * float(matrix.abs().max()) + 1e-12
        if not torch.allclose(matrix, matrix.T, rtol=0, atol=off) or bool((matrix.diagonal() < -off).any()):
            raise ValueError("a feature matrix must be symmetric, with a diagonal that is not negative")

    def tensors(self) -> dict[str, Tensor]:
        """The matrix."""
        return {"matrix": self.matrix}

    def describe(self) -> Any:
        """Nothing else is needed."""
        return {}

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> FeatureMatrix:
        """Make it again."""
        return cls(tensors.pop("matrix"))

    def merge(self, other: FeatureMatrix, classes: tuple[int, int]) -> FeatureMatrix:
        """That of the newer task."""
        return other

    def to(self, device: torch.device | str) -> FeatureMatrix:
        """The same on another device."""
        return FeatureMatrix(self.matrix.to(device))

    def without(self, labels: Collection[int]) -> tuple[FeatureMatrix, str]:
        """It is of all classes of the last task together."""
        return self, "their part in the matrix of how much features matter to the last task"

    def stored(self) -> list[StoredItem]:
        """One row."""
        detail = f"how much {len(self.matrix)} features matter to the answers for the last task's images"
        return [StoredItem("feature matrix", "pooled features", detail, size_of([self.matrix]))]

    def check(self, network: Classifier) -> None:
        """It must be of the network's features."""
        if len(self.matrix) != network.backbone.feature_dim:
            raise ValueError("the memory is of another network: its features are not the network's")


def feature_matrix(features: Tensor, head: torch.nn.Linear) -> FeatureMatrix:
    """E = mean over images of W' (diag p - p p') W, p the softmax of a linear head's logits, W its weights (K, D).

    That is the mean of sum_k p_k J_k' J_k, J the Jacobian of log p at the feature: the Fisher information of it.

    Args:
        features: (N, D).
        head: of all classes.

    """
    with torch.no_grad():
        x, weight = features.double(), head.weight.double().to(features.device)
        bias = 0 if head.bias is None else head.bias.double().to(features.device)
        probabilities = (x @ weight.T + bias).softmax(1)
        inner = probabilities.mean(0).diag() - probabilities.T @ probabilities / len(x)
        return FeatureMatrix((weight.T @ inner @ weight).to(features))
