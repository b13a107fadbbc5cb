"""Sums of outer products of rows about their means, in groups: full matrices, their diagonals, or three vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from remix.laplace import LaplaceCovariance, fit_covariance

__all__ = ["SCATTERS", "Scatter", "ScatterKind", "full", "packed"]

ScatterKind = Literal["none", "diagonal", "dense", "laplace"]
SCATTERS: dict[ScatterKind, tuple[str, ...]] = {
    "none": (),
    "diagonal": ("squares",),
    "dense": ("scatter",),
    "laplace": ("diag", "weight", "coord"),
}
"""Kinds, and the names of their tensors."""

_TINY = 1e-6  # of the mean variance, given to features that never vary: a Laplace covariance needs some


@dataclass(frozen=True, eq=False)
class Scatter:
    """For each of G groups the sum of x x' over its rows (D,), which have mean 0 there. All in float64, on the CPU.

    Attributes:
        kind: what is kept of the matrices (D, D): nothing; "diagonal": (G, D); "dense": the upper triangles,
            (G, D (D + 1) / 2); "laplace": a Laplace covariance, three vectors (1, D), of one group.
        tensors: by the names of `SCATTERS`.
        dim: D.

    Raises:
        ValueError: if they are not of such shapes.

    """

    kind: ScatterKind
    tensors: dict[str, Tensor]
    dim: int

    def __post_init__(self) -> None:
        if self.kind not in SCATTERS or set(self.tensors) != set(SCATTERS[self.kind]):
            raise ValueError(f"no scatter is of the kind {str(self.kind)[:20]!r} with {', '.join(self.tensors)[:60]}")
        length = self.dim * (self.dim + 1) // 2 if self.kind == "dense" else self.dim
        for name, tensor in self.tensors.items():
            if tensor.dim() != 2 or tensor.shape[1] != length or tensor.dtype != torch.float64 or not len(tensor):
                raise ValueError(f"{name} must be float64 (groups, {length}), got {tuple(tensor.shape)} {tensor.dtype}")

    def check(self) -> None:
        """Whether the numbers, from elsewhere, can be such sums. Raises ValueError."""
        for name, tensor in self.tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name} must be finite")
        if self.kind == "laplace":
            self._laplace()  # raises for what is none
        elif self.kind != "none" and bool((self.squares() < 0).any()):
            raise ValueError("sums of squares must not be negative")

    @classmethod
    def of(cls, rows: Tensor, groups: Tensor, count: int, kind: ScatterKind) -> Scatter:
        """Of rows (N, D) that belong to groups (N,); dense where a Laplace covariance is to be fitted."""
        dim = rows.shape[1]
        if kind == "none":
            return cls(kind, {}, dim)
        if kind == "diagonal":
            return cls(kind, {"squares": rows.new_zeros(count, dim).index_add_(0, groups, rows.square())}, dim)
        parts = [rows[groups == group] if count > 1 else rows for group in range(count)]
        return cls("dense", {"scatter": torch.stack([packed(part.T @ part) for part in parts])}, dim)

    def matrix(self, group: int = 0) -> Tensor:
        """(D, D) of a group; of the kind "diagonal" only its diagonal (D,)."""
        if self.kind == "diagonal":
            return self.tensors["squares"][group]
        if self.kind == "laplace":
            return self._laplace().to_dense(limit=self.dim)
        return full(self.tensors["scatter"][group], self.dim)

    def squares(self) -> Tensor:
        """Diagonals (G, D)."""
        if self.kind == "dense":
            rows = torch.arange(self.dim)
            return self.tensors["scatter"][:, rows * self.dim - rows * (rows - 1) // 2]
        return self._laplace().diagonal()[None] if self.kind == "laplace" else self.tensors["squares"]

    @classmethod
    def nothing(cls, kind: ScatterKind, dim: int, count: int) -> Scatter:
        """Zeros; not for a Laplace covariance."""
        length = cls.numbers(kind, dim)
        return cls(kind, {name: torch.zeros(count, length, dtype=torch.float64) for name in SCATTERS[kind]}, dim)

    def add_(self, other: Scatter, places: Tensor) -> None:
        """Add the groups of another to those of its own at these places."""
        for name, tensor in self.tensors.items():
            tensor.index_add_(0, places, other.tensors[name])

    def together(self) -> Scatter:
        """All groups as one."""
        return Scatter(
            self.kind, {name: tensor.sum(0, keepdim=True) for name, tensor in self.tensors.items()}, self.dim
        )

    def at(self, groups: list[int]) -> Scatter:
        """Of some groups."""
        return Scatter(self.kind, {name: tensor[groups] for name, tensor in self.tensors.items()}, self.dim)

    def __add__(self, other: Scatter) -> Scatter:
        added = {name: tensor + other.tensors[name] for name, tensor in self.tensors.items()}
        return Scatter(self.kind, added, self.dim)

    def as_dense(self) -> Scatter:
        """With matrices, where it has a Laplace covariance."""
        return self if self.kind != "laplace" else Scatter("dense", {"scatter": packed(self.matrix())[None]}, self.dim)

    def as_laplace(self, samples: int, known: Scatter | None = None) -> Scatter:
        """A Laplace covariance fitted to a matrix of so many rows, from one that is known as well."""
        matrix = self.matrix()
        variance = matrix.diagonal()
        floor = _TINY * float(variance.mean()) or 1.0  # of nothing that varies: as if all did alike
        matrix.diagonal().copy_(torch.where(variance > floor, variance, floor))
        starts = [] if known is None else [known._laplace()]
        found = fit_covariance(matrix, samples=samples, known=starts).covariance
        return Scatter("laplace", {name: tensor.detach()[None] for name, tensor in found.tensors().items()}, self.dim)

    def bytes(self, kind: ScatterKind) -> int:
        """Of as many groups in another kind."""
        return 8 * self.numbers(kind, self.dim) * max((len(tensor) for tensor in self.tensors.values()), default=0)

    @staticmethod
    def numbers(kind: ScatterKind, dim: int) -> int:
        """That a group of so many features has."""
        return {"none": 0, "diagonal": dim, "laplace": 3 * dim, "dense": dim * (dim + 1) // 2}[kind]

    def _laplace(self) -> LaplaceCovariance:
        return LaplaceCovariance(**{name: tensor[0] for name, tensor in self.tensors.items()}, validate_args=True)


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix (D, D), row by row: (D (D + 1) / 2,)."""
    return torch.cat([row[place:] for place, row in enumerate(matrix)])


def full(triangle: Tensor, dim: int) -> Tensor:
    """The inverse of `packed`."""
    rows, columns = torch.triu_indices(dim, dim)
    matrix = triangle.new_empty(dim, dim)
    matrix[rows, columns] = triangle
    matrix[columns, rows] = triangle
    return matrix
