"""Relational distillation: the angles between the samples of a batch stay what they were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["RelationalProjectors", "angle_loss"]

# Two points closer than this have no direction: every angle at one of them to the other counts as 0.
_COINCIDENT = 1e-12
# Entries of the angle tensor that are held at a time; 1 MB in double precision, so that they stay in the cache.
_CHUNK = 1 << 17


def angle_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean absolute difference of the cosines of all angles in two batches of points.

    The angle of a triple (i, j, k) is the one at point i between the directions to j and to k:
    cos = e_ij . e_ik with e_ij = (z_j - z_i) / |z_j - z_i|. The mean is over all B^3 triples; those in which j or k
    coincides with i count as 0.

    The B^3 cosines come from the B^2 distances, so that neither B x B x B x dim nor B x B x dim numbers are formed,
    and they are formed for a few i at a time. The gradient is formed along with them: memory is O(B^2 + B dim), also
    for the backward pass. Work is done in double precision, because the law of cosines loses digits where one point
    is much nearer than another.

    Args:
        student: (B, any dim); receives a gradient.
        teacher: (B, any dim), not necessarily the same dim; receives a gradient too if it asks for one.

    Returns:
        A scalar, at least float32. Coincident points pull on nothing. There is no second derivative.

    Raises:
        ValueError: if the shapes do not fit or the batch is empty.

    """
    for name, points in (("student", student), ("teacher", teacher)):
        if points.dim() != 2 or not points.is_floating_point():
            raise ValueError(f"{name} must be floating-point (B, dim), got {points.dtype} {tuple(points.shape)}")
    if len(student) != len(teacher) or len(student) == 0:
        raise ValueError(
            f"student and teacher must be of the same images, at least one; got {len(student)} and {len(teacher)}"
        )
    loss: Tensor = _AngleLoss.apply(student, teacher)
    return loss


class RelationalProjectors(nn.Module):
    """Two linear maps, of student and of teacher features, between whose images the angle loss is taken.

    Both are trained, and made anew for every task. 2 (feature_dim dim + dim) parameters.

    Args:
        feature_dim: length of a pooled feature.
        dim: length of a projected one.
        generator: source of the initial weights, uniform within 1/sqrt(feature_dim) of 0.

    Raises:
        ValueError: if a length is below 1.

    """

    def __init__(self, feature_dim: int, dim: int = 128, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if feature_dim < 1 or dim < 1:
            raise ValueError(f"feature_dim and dim must be at least 1, got {feature_dim} and {dim}")
        # Drawn where the generator lives: a seed means the same weights on every device the module is moved to.
        source = generator.device if generator is not None else torch.device("cpu")
        self.student = nn.Linear(feature_dim, dim, device=source)
        self.teacher = nn.Linear(feature_dim, dim, device=source)
        bound = 1 / math.sqrt(feature_dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Angle loss between pooled features (B, feature_dim) of the same images. No gradient reaches ``teacher``."""
        return angle_loss(self.student(student), self.teacher(teacher.detach()))


@dataclass(frozen=True)
class _Distances:
    """Half squared distances and reciprocal distances (B, B) between the points of a batch; 0 where they coincide."""

    half_square: Tensor
    reciprocal: Tensor

    @classmethod
    def of(cls, points: Tensor) -> _Distances:
        # Not by way of the Gram matrix, which would lose the distances of points far from the origin.
        distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        apart = distance > _COINCIDENT
        return cls(distance.square() / 2, torch.where(apart, 1 / distance, 0))

    def cosines(self, anchors: slice, out: Tensor) -> None:
        """Cosines at some anchors, (anchors, B, B): (|ij|^2 + |ik|^2 - |jk|^2) / (2 |ij| |ik|)."""
        half, reciprocal = self.half_square[anchors], self.reciprocal[anchors]
        torch.sub(half[:, :, None], self.half_square, out=out)
        out.add_(half[:, None, :]).mul_(reciprocal[:, :, None]).mul_(reciprocal[:, None, :])


class _Pull:
    """The derivative of sum_ijk s_ijk cos_ijk with respect to the points, for signs s that are symmetric in j, k.

    With p_ijk = s_ijk / (|ij| |ik|) and w_ij = sum_k s_ijk cos_ijk / |ij|^2, the derivative with respect to the
    difference z_j - z_i is 2 sum_k p_ijk (z_k - z_i) - 2 w_ij (z_j - z_i): everything is linear in the points, and a
    (B, B) matrix of coefficients is all that has to be gathered.
    """

    def __init__(self, distances: _Distances) -> None:
        self._reciprocal = distances.reciprocal
        self._pairs = torch.zeros_like(self._reciprocal)
        self._from_anchor = torch.empty_like(self._reciprocal)
        self._towards = torch.empty_like(self._reciprocal)

    def gather(self, anchors: slice, signs: Tensor, cosines: Tensor) -> None:
        """Add the triples of some anchors. Overwrites ``cosines``."""
        reciprocal = self._reciprocal[anchors]
        self._towards[anchors] = cosines.mul_(signs).sum(2) * reciprocal.square()
        torch.mul(signs, reciprocal[:, :, None], out=cosines)
        cosines.mul_(reciprocal[:, None, :])
        self._pairs += cosines.sum(0)
        self._from_anchor[anchors] = cosines.sum(2)

    def on(self, points: Tensor) -> Tensor:
        """The derivative (B, dim)."""
        links = self._pairs + self._towards + self._towards.T - self._from_anchor - self._from_anchor.T
        # Every row of the coefficients sums to 0: moving all points together changes no angle.
        links.diagonal().sub_(links.sum(1))
        return 2 * (links @ (points - points.mean(0)))


class _AngleLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor) -> Tensor:
        count = len(student)
        # Apple's GPUs have no double precision.
        wide = torch.float32 if student.device.type == "mps" else torch.float64
        points = [student.detach().to(wide), teacher.detach().to(wide)]
        distances = [_Distances.of(batch) for batch in points]
        pulls = [_Pull(each) if needed else None for each, needed in zip(distances, ctx.needs_input_grad, strict=True)]
        total = points[0].new_zeros(())
        step = min(count, max(1, _CHUNK // count**2))
        # Kept from chunk to chunk: fresh memory costs more than what is done with it.
        kept = [points[0].new_empty(step, count, count) for _ in range(4)]
        for start in range(0, count, step):
            anchors = slice(start, min(start + step, count))
            *cosines, difference, signs = (each[: anchors.stop - start] for each in kept)
            for each, own in zip(distances, cosines, strict=True):
                each.cosines(anchors, own)
            torch.sub(*cosines, out=difference)
            torch.sign(difference, out=signs)
            total += difference.mul_(signs).sum()
            for pull, own in zip(pulls, cosines, strict=True):
                if pull is not None:
                    pull.gather(anchors, signs, own)
        gradients = [
            None if pull is None else (pull.on(batch) * (sign / count**3)).to(given.dtype)
            for pull, batch, given, sign in zip(pulls, points, (student, teacher), (1, -1), strict=True)
        ]
        ctx.save_for_backward(*gradients)
        return (total / count**3).to(torch.promote_types(student.dtype, torch.float32))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(
            None if gradient is None else scale.to(gradient.dtype) * gradient for gradient in ctx.saved_tensors
        )
