"""How much nearer an image lies to a class that is known than to the middle of all of them. All in float64.

Of classes with means m of n images each, N in all, with mean g, and the scatter W about the m, of f degrees of freedom:

    C = 0.1 W / f + 0.9 diag(W / f)                     features of one class
    A = C + 0.1 / N sum of n (m - g) (m - g)'           features of any class, which vary more
    score = (x - g)' A^-1 (x - g) - min (x - m)' C^-1 (x - m)

This is a relative Mahalanobis distance (Ren et al., 2021). What makes an image unlike every photograph is in both terms
and falls out; what makes it like one class alone stays. As A is C but for the means, only the inner products s of x - g
with them are needed: the score is max(2 s - G) - s' (1 / (0.1 n / N) + G)^-1 s, G those of the means with each other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.class_sums import ClassSums
from remix.statistics.memory import Memory

__all__ = ["Familiarity"]

_SHRINKAGE = 0.9  # of the covariance to its diagonal: 0.8 to 0.98 tell unseen birds equally well
_BETWEEN = 0.1  # of what the means vary: as much as is left of what features vary together
_FLOOR = 1e-4  # of the mean variance: what a feature that never varied is taken to vary


class Familiarity:
    """Scores of images, higher for those of known classes.

    Args:
        mean: (K, D).
        counts: (K,) images of each class.
        scatter: (D, D) about the means; its diagonal (D,); None where it is not known: all features vary alike then.
        fitted: whether a few numbers were fitted to the scatter, from which no image can be taken.

    Raises:
        ValueError: if the scatter is none.

    """

    def __init__(self, mean: Tensor, counts: Tensor, scatter: Tensor | None, fitted: bool = False) -> None:
        self._counts, self._images = counts, float(counts.sum())
        self._centre = (counts[:, None] * mean).sum(0) / self._images
        freedom = max(self._images - len(counts), 1.0)
        away = mean - self._centre
        between = (counts[:, None] * away.square()).sum(0) / self._images
        squares = between.mean().expand(mean.shape[1]) * freedom if scatter is None else scatter
        squares = squares if squares.dim() == 1 else squares.diagonal()
        variance = squares / freedom
        average = float(variance.mean())
        self._scale = (variance + _FLOOR * average).rsqrt() if average > 0 else torch.ones_like(variance)
        self._share, self._root = 0.0, None
        if scatter is not None and scatter.dim() == 2:
            share = (1 - _SHRINKAGE) / freedom
            matrix = (scatter * (share * self._scale)).mul_(self._scale[:, None])
            matrix.diagonal().add_(_SHRINKAGE)
            self._root, failed = torch.linalg.cholesky_ex(matrix)
            if int(failed):
                raise ValueError("the statistics of the model are none: their scatter has negative eigenvalues")
            self._share = 0.0 if fitted else share
        self._means = self._white(away)
        self._products = self._means @ self._means.T
        inverse = torch.diag(self._images / (_BETWEEN * counts))
        self._held = torch.linalg.inv(inverse + self._products)
        weight = self._means
        if self._root is not None:
            weight = torch.linalg.solve_triangular(self._root.T, weight.T, upper=True).T
        self._weight = weight * self._scale

    @classmethod
    def of(cls, memory: Memory, classes: int) -> Familiarity | None:
        """From the sums of all classes, or else their Gaussians; None without either. Raises ValueError."""
        sums, gaussians = memory.get(ClassSums.name), memory.gaussians
        everything = tuple(range(classes))
        if sums is not None:
            return cls.of_sums(sums) if sums.labels == everything else None
        return cls.of_gaussians(gaussians) if gaussians is not None and gaussians.labels == everything else None

    @classmethod
    def of_sums(cls, sums: ClassSums) -> Familiarity:
        """Of all classes together, where each has a scatter of its own."""
        scatter = None
        if sums.scatter.kind != "none":
            scatter = sums.scatter.matrix()
            for group in range(1, len(sums.labels) if sums.own else 1):
                scatter = scatter + sums.scatter.matrix(group)
        return cls(sums.mean, sums.weights(), scatter, sums.scatter.kind == "laplace")

    @classmethod
    def of_gaussians(cls, gaussians: ClassGaussians) -> Familiarity:
        """Of all classes together."""
        counts = torch.tensor(gaussians.counts, dtype=torch.float64)
        std = gaussians.std.double().cpu()
        if gaussians.correlation is None:
            scatter = (counts[:, None] * std.square()).sum(0)
        else:
            scatter = torch.zeros(std.shape[1], std.shape[1], dtype=torch.float64)
            for count, spread, correlation in zip(counts, std, gaussians.correlation, strict=True):
                scatter += count * spread[:, None] * correlation.double().cpu() * spread
        return cls(gaussians.mean.double().cpu(), counts, scatter)

    @property
    def dim(self) -> int:
        """D."""
        return len(self._centre)

    def __call__(self, x: Tensor) -> Tensor:
        """Scores (N,) of features (N, D)."""
        inner = (x.double().cpu() - self._centre) @ self._weight.T
        nearest = (2 * inner - self._products.diagonal()).amax(1)
        return nearest - ((inner @ self._held) * inner).sum(1)

    def left_out(self, x: Tensor, labels: Tensor) -> Tensor:
        """Scores (N,) of images that the statistics are of, each by statistics without it.

        Leaving x out of a class of n takes n / (n - 1) d d' from W, d = x - m, and N / (N - 1) e e' from what W and the
        means make together, e = x - g. What C is shrunk towards, f and N in A stay those of all images.

        Args:
            x: (N, D).
            labels: (N,) places of their classes, each of more than one image.

        """
        away = self._white(x - self._centre)
        own, each, every = labels[:, None], self._counts[labels], self._images
        from_own = away - self._means[labels]
        grown, all_grown = each / (each - 1), every / (every - 1)
        inner, alone = away @ self._means.T, from_own @ self._means.T
        length = from_own.square().sum(1)
        # to every class: a matrix from which d d' was taken, and of its own class the mean without the image
        across = (away * from_own).sum(1)[:, None] - alone
        distances = away.square().sum(1)[:, None] - 2 * inner + self._products.diagonal()
        gain = self._share * grown
        gain = gain / (1 - gain * length)
        distances = distances + gain[:, None] * across.square()
        distances = distances.scatter(1, own, distances.gather(1, own) * grown.square()[:, None])
        # to the middle: A loses a part of d d' and of e e'
        between = _BETWEEN / every
        taken = torch.stack([(self._share - between) * grown, torch.full_like(grown, between * all_grown)], 1)
        pair = (from_own, away)
        square = torch.stack([torch.stack([self._inner(one, other) for other in pair], 1) for one in pair], 1)
        lost = torch.eye(2, dtype=x.dtype) - taken[:, :, None] * square
        change = torch.linalg.solve(lost, taken * square[:, :, 1])
        middle = all_grown**2 * (square[:, 1, 1] + (square[:, 1] * change).sum(1))
        return middle - distances.amin(1)

    def _white(self, rows: Tensor) -> Tensor:
        """Differences of features in units of their spread, uncorrelated."""
        rows = rows * self._scale
        return rows if self._root is None else torch.linalg.solve_triangular(self._root, rows.T, upper=False).T

    def _inner(self, one: Tensor, other: Tensor) -> Tensor:
        """Inner products (N,) of white rows by A."""
        return (one * other).sum(1) - ((one @ self._means.T @ self._held) * (other @ self._means.T)).sum(1)
