"""Kernel sums in the plane: sums over pairs of exp(-distance on one axis - distance on another), in O(D log D).

They give the inner product of two Laplace covariances, and the trace in their KL divergence (`remix.laplace.kl`), when
the two sort the coordinates differently (docs/mathematics.md, "Sums in the plane"). All in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from remix.laplace import blocked, kernels

if TYPE_CHECKING:
    from remix.laplace.covariance import LaplaceCovariance

__all__ = [
    "Axis", "Part", "call_native", "check_alike", "inner", "over_pairs", "plane_form", "plane_sums", "runs_natively",
]  # fmt: skip

# exp(-1024) is 0 in float64: a longer gap, infinite ones included, separates just as well.
_FAR = 1024.0
_ROW = 1024


@dataclass(frozen=True)
class Axis:
    """D points on a line: ``order[k]`` is the point at sorted place k, ``gap[k]`` >= 0 its distance to place k - 1.

    ``gap`` is float64; ``gap[0]`` is not used, and a gap may be infinite.
    """

    order: Tensor
    gap: Tensor

    @classmethod
    def of(cls, coord: Tensor, order: Tensor | None = None) -> Axis:
        """The axis of coordinates (D,), ties in the order of a stable sort. Differentiable: gaps keep the graph."""
        line = coord.double()
        order = torch.argsort(line.detach(), stable=True) if order is None else order
        line = line[order]
        return cls(order, torch.cat([line.new_zeros(1), line[1:] - line[:-1]]))

    @cached_property
    def rank(self) -> Tensor:
        """The sorted place of each point, int64 (D,)."""
        places = torch.arange(len(self.order), device=self.order.device)
        return torch.empty_like(self.order).scatter_(0, self.order, places)

    def positions(self) -> Tensor:
        """(D, 2): integer and fractional part of the position of each sorted place.

        Kept apart, and summed by rows, so that a difference of two near positions is accurate to 1e-13 on an axis of
        any length.
        """
        size = self.gap.shape[0]
        gap = self.gap.detach().clamp(max=_FAR)
        gap = torch.cat([gap.new_zeros(1), gap[1:]])
        whole = gap.floor()
        rows = -(-size // _ROW)
        local = torch.nn.functional.pad(gap - whole, (0, rows * _ROW - size)).view(rows, _ROW).cumsum(1)
        carry = local[:, -1]
        carry_whole = carry.floor()
        starts = (v.cumsum(0) - v for v in (carry_whole, carry - carry_whole))
        start_whole, start_part = (v.repeat_interleave(_ROW)[:size] for v in starts)
        return torch.stack([whole.cumsum(0) + start_whole, local.reshape(-1)[:size] + start_part], dim=1)


def runs_natively(tensor: Tensor) -> bool:
    """Whether the native kernels serve this tensor."""
    return tensor.device.type == "cpu" and kernels.native() is not None


def call_native(name: str, first: Tensor, *arrays: Tensor | None, threads: bool = False) -> None:
    """Calls a C function of (D, pointers to the arrays[, threads]); D is the length of ``first``.

    Raises:
        MemoryError: the function returned that it has no memory for its own arrays.
    """
    library = kernels.native()
    assert library is not None
    size = len(first)
    dense = [None if v is None else v.contiguous() for v in (first, *arrays)]  # outputs are contiguous: not copied
    if library.call(name, size, *dense, *([torch.get_num_threads()] if threads else [])):
        raise MemoryError(f"{name}: no memory for {size} coordinates")


def plane_sums(left: Tensor, right: Tensor, first: Axis, second: Axis) -> Tensor:
    """Sums over the other points, split by where they are: float64 (4, D), in the original order of the points.

    With K_ij = exp(-distance on the first axis - distance on the second), row 0 is the sum of ``left_j K_ij`` over
    points j before i on both axes, row 1 before on the first and after on the second; row 2 is the sum of ``right_j
    K_ij`` over j after i on the first axis and before on the second, row 3 after on both. ``left``, ``right``: (D,).
    """
    order = first.order
    if not runs_natively(order):
        left, right = (v.detach().double()[order] for v in (left, right))
        sums = _levels(left, right, second.rank[order], first.positions(), second.positions())
        return torch.empty_like(sums).index_copy_(1, order, sums)
    sums = torch.empty(4, len(order), dtype=torch.float64)
    arrays = (order, first.gap, second.order, second.gap, left.double(), right.double(), sums)
    call_native("remix_plane_sums", *arrays, threads=True)
    return sums


def plane_form(left: Tensor, right: Tensor, first: Axis, second: Axis) -> Tensor:
    """sum over i after j on the first axis of right_i K_ij left_j: a float64 scalar.

    Differentiable in ``left``, ``right`` (D,) and the gaps of both axes: the sums of the value give the gradients too.
    """
    value: Tensor = _PlaneForm.apply(left, right, first.gap, second.gap, first.order, second.order)
    return value


class _PlaneForm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, gap1: Tensor, gap2: Tensor, order1: Tensor, order2: Tensor
    ) -> Tensor:
        first, second = Axis(order1, gap1), Axis(order2, gap2)
        if torch.equal(order1, order2):
            sums = _line_sums(left, right, order1, gap1 + gap2)
        else:
            sums = plane_sums(left, right, first, second)
        ctx.save_for_backward(left, right, order1, order2, sums)
        return torch.dot(right.double(), sums[0] + sums[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right, order1, order2, sums = ctx.saved_tensors
        left64, right64 = left.double(), right.double()
        into_right, into_left = sums[0] + sums[1], sums[2] + sums[3]
        # Moving point i up an axis takes it away from what is below and towards what is above.
        move1 = left64 * into_left - right64 * into_right
        move2 = left64 * (sums[3] - sums[2]) + right64 * (sums[1] - sums[0])
        gaps = (_suffix_sum(move[order]) for move, order in ((move1, order1), (move2, order2)))
        ends = ((grad * into_left).to(left.dtype), (grad * into_right).to(right.dtype))
        return *ends, *(grad * gap for gap in gaps), None, None


def _suffix_sum(move: Tensor) -> Tensor:
    """Gradient in the gaps from the gradient in the positions: widening a gap moves every later point."""
    total = move.flip(0).cumsum(0).flip(0)
    total[0] = 0
    return total


def _line_sums(left: Tensor, right: Tensor, order: Tensor, gap: Tensor) -> Tensor:
    """`plane_sums` when both axes have the same order: one scan each way."""
    sums = torch.zeros(4, len(order), dtype=torch.float64, device=order.device)
    if not runs_natively(order):
        left, right = (v.double()[order] for v in (left, right))
        decay = torch.exp(-gap)
        sums[0, order], sums[3, order] = _scan(decay, left), _scan_down(decay, right)
    else:
        call_native("remix_line_sums", order, gap, left.double(), right.double(), sums)
    return sums


def _scan(decay: Tensor, source: Tensor) -> Tensor:
    """h_k = decay_k (h_{k-1} + source_{k-1}), h_0 = 0: (D,)."""
    after = blocked.following(decay)
    return blocked.scan(after, after * source)


def _scan_down(decay: Tensor, source: Tensor) -> Tensor:
    """The same from the other end: h_k = decay_{k+1} (h_{k+1} + source_{k+1}), the last one 0."""
    return _scan(torch.cat([decay[:1], decay[1:].flip(0)]), source.flip(0)).flip(0)


def _levels(left: Tensor, right: Tensor, rank: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The native algorithm, one level of the merge sort at a time, all blocks at once: any device, O(D log D).

    Arguments in the order of the first axis, except ``second``.
    """
    size = left.shape[0]
    depth = max(1, (size - 1).bit_length())
    full = 1 << depth
    pad = (0, full - size)
    left, right = (torch.nn.functional.pad(v, pad) for v in (left, right))
    # Padding sits at the far end of both axes and sends nothing.
    rank = torch.cat([rank, torch.arange(size, full, device=rank.device)])
    first, second = (torch.cat([v, v[-1:].expand(full - size, 2)]) for v in (first, second))
    sums = left.new_zeros(4, full)
    places = torch.arange(full, device=rank.device)
    for level in range(depth):
        half = 1 << level
        block = rank.view(-1, 2 * half).sort(dim=1)
        place = places.view(-1, 2 * half).gather(1, block.indices)
        in_second = ((place & half) != 0).view(-1)
        away = (first[place] - first.view(-1, 2 * half, 2)[:, half - 1 : half]).sum(2).abs()
        reach = torch.exp(-away).view(-1)
        # A decay of 0 at the start of each block keeps the blocks apart in one long scan.
        decay = torch.nn.functional.pad(torch.exp(-second[block.values].diff(dim=1).sum(2)), (1, 0)).view(-1)
        place = place.view(-1)
        for row, source, sends in ((0, left, ~in_second), (2, right, in_second)):
            sent = torch.where(sends, source[place] * reach, 0.0)
            takes = torch.where(sends, 0.0, reach)
            sums[row].index_add_(0, place, takes * _scan(decay, sent))
            sums[row + 1].index_add_(0, place, takes * _scan_down(decay, sent))
    return sums[:, :size]


def inner(first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """<Sigma1, Sigma2>_F = tr(Sigma1 Sigma2), differentiable in all six parameter vectors in closed form.

    O(D) when both sort their coordinates the same way, O(D log D) otherwise; float64 inside. Batch shapes broadcast;
    the result has the broadcast batch shape and the dtype of the parameters.

    Raises:
        ValueError: the two have different dimensions, dtypes or devices.
    """
    check_alike("second", first, second)
    return over_pairs(_inner, first, second)


class Part(NamedTuple):
    """One covariance of a batch: diag and weight in float64 (D,), and the axis of its coordinates."""

    diag: Tensor
    weight: Tensor
    axis: Axis


def _inner(first: Part, second: Part) -> Tensor:
    product = first.weight * second.weight
    diagonal = torch.dot(first.diag + first.weight.square(), second.diag + second.weight.square())
    return diagonal + 2 * plane_form(product, product, first.axis, second.axis)


def over_pairs(function: Callable[[Part, Part], Tensor], first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """A scalar function of two covariances over their broadcast batch, one pair after the other, in their dtype."""
    batch = torch.broadcast_shapes(first.batch_shape, second.batch_shape)
    ones, others = (_parts(c if c.batch_shape == batch else c.expand(batch)) for c in (first, second))
    values = [function(one, other) for one, other in zip(ones, others, strict=True)]
    return torch.stack(values).reshape(batch).to(first.dtype)


def _parts(covariance: LaplaceCovariance) -> list[Part]:
    """The covariances of the batch, with the order that their factorisation has already found.

    Copies: autograd keeps the factors of a product, and does not see all that may be done to a parameter meanwhile.
    """
    return [
        Part(diag.to(torch.float64, copy=True), weight.to(torch.float64, copy=True), Axis.of(coord, factor.order))
        for (diag, weight, coord), factor in covariance._each()
    ]


def check_alike(name: str, first: LaplaceCovariance, second: LaplaceCovariance) -> None:
    """Raises a ValueError that names the argument unless dimension, dtype and device agree."""
    for what, one, other in (
        ("dimension", first.dim, second.dim),
        ("dtype", first.diag.dtype, second.diag.dtype),
        ("device", first.diag.device, second.diag.device),
    ):
        if one != other:
            raise ValueError(f"{name} has {what} {other}, expected {one} as in the one it is combined with")
