"""Moments and samples of rows that pass by once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remix.statistics import Reservoir, RunningMoments
from remix.statistics import moments as module


def naive(rows: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The obvious two-pass twin."""
    total = weights.sum()
    mean = (weights[:, None] * rows).sum(0) / total
    covariance = np.zeros((rows.shape[1], rows.shape[1]))
    for row, weight in zip(rows, weights, strict=True):
        covariance += weight * np.outer(row - mean, row - mean)
    return total, mean, covariance / total


def measured(rows: torch.Tensor, weights: torch.Tensor | None = None, covariance: bool = True) -> RunningMoments:
    moments = RunningMoments(rows.shape[1], covariance)
    moments.update(rows, weights)
    return moments


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 0),
    dim=st.integers(1, 5),
    seed=st.integers(0, 2**31),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
    weighted=st.booleans(),
)
def test_any_split_gives_the_naive_result(sizes, dim, seed, offset, weighted):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(sum(sizes), dim, generator=generator, dtype=torch.float64) + offset
    weights = torch.rand(sum(sizes), generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    splits = list(zip(rows.split(sizes), [None] * len(sizes) if weights is None else weights.split(sizes), strict=True))
    one_pass = RunningMoments(dim, covariance=True)
    merged = RunningMoments(dim, covariance=True)
    for part, part_weights in splits:
        one_pass.update(part, part_weights)
        merged = measured(part, part_weights).merge(merged)
    given_weights = np.ones(sum(sizes)) if weights is None else weights.numpy()
    total, mean, covariance = naive(rows.numpy(), given_weights)
    tolerance = 1e-9 * max(1.0, offset**2 * 1e-6)
    for moments in (one_pass, merged):
        assert moments.weight == pytest.approx(total)
        np.testing.assert_allclose(moments.mean.numpy(), mean, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(moments.covariance().numpy(), covariance, rtol=1e-7, atol=tolerance)
        np.testing.assert_allclose(moments.variance().numpy(), np.diag(covariance), rtol=1e-7, atol=tolerance)


def test_large_batches_are_taken_in_chunks_with_the_same_result(monkeypatch):
    rows = torch.randn(100, 3)
    whole = measured(rows)
    monkeypatch.setattr(module, "_CHUNK", 21)
    parts = measured(rows)
    assert torch.allclose(whole.covariance(), parts.covariance(), atol=1e-12)


def test_diagonal_moments_are_the_diagonal_of_the_full():
    rows, weights = torch.randn(50, 4), torch.rand(50)
    full, diagonal = measured(rows, weights), measured(rows, weights, covariance=False)
    assert torch.allclose(full.variance(), diagonal.variance())
    with pytest.raises(ValueError, match="covariance=True"):
        diagonal.covariance()


def test_float32_rows_far_from_zero_keep_their_variance():
    rows = 1000 + torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    exact = rows.double().var(0, correction=1)
    assert torch.allclose(measured(rows).variance(correction=1), exact, rtol=1e-9)


def test_integer_weights_count_rows():
    rows = torch.randn(5, 3, dtype=torch.float64)
    counts = torch.tensor([1, 2, 0, 3, 1])
    repeated = measured(rows.repeat_interleave(counts, 0))
    assert torch.allclose(measured(rows, counts.double()).covariance(), repeated.covariance())


def test_moments_made_of_mean_and_covariance_give_them_back():
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    moments = RunningMoments.of(7, torch.tensor([1.0, 2.0]), covariance)
    assert torch.allclose(moments.covariance().float(), covariance)
    assert moments.weight == 7


def test_rows_are_not_changed_and_not_differentiated():
    rows = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    before = rows.detach().clone()
    moments = measured(rows)
    assert torch.equal(rows.detach(), before)
    assert not moments.mean.requires_grad
    assert not moments.scatter.requires_grad


def test_bad_rows_leave_the_moments_unchanged():
    moments = measured(torch.randn(5, 2))
    mean, weight = moments.mean.clone(), moments.weight
    bad = torch.tensor([[1.0, float("nan")]])
    with pytest.raises(ValueError, match="finite"):
        moments.update(bad)
    with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(3, 3\)"):
        moments.update(torch.randn(3, 3))
    with pytest.raises(ValueError, match="not negative"):
        moments.update(torch.randn(1, 2), torch.tensor([-1.0]))
    with pytest.raises(ValueError, match=r"weights must have shape \(2,\)"):
        moments.update(torch.randn(2, 2), torch.ones(3))
    assert torch.equal(moments.mean, mean)
    assert moments.weight == weight


def test_too_few_rows_have_no_variance():
    moments = measured(torch.randn(1, 2))
    assert torch.equal(moments.variance(), torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="1 rows have no variance"):
        moments.variance(correction=1)
    with pytest.raises(ValueError, match="0 rows"):
        RunningMoments(2).variance()


def test_different_moments_do_not_merge():
    with pytest.raises(ValueError, match="cannot be merged"):
        measured(torch.randn(3, 2)).merge(measured(torch.randn(3, 2), covariance=False))


def filled(rows: torch.Tensor, sizes: list[int], capacity: int, seed: int = 0) -> Reservoir:
    reservoir = Reservoir(capacity, rows.shape[1], seed)
    for part in rows.split(sizes):
        reservoir.update(part)
    return reservoir


def test_few_rows_are_all_kept():
    rows = torch.arange(10.0).reshape(5, 2)
    kept = filled(rows, [2, 3], 8).rows()
    assert torch.equal(kept.sort(0).values, rows)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6), capacity=st.integers(1, 12))
def test_the_choice_does_not_depend_on_batches(sizes, capacity):
    rows = torch.arange(float(sum(sizes)))[:, None]
    if not len(rows):
        return
    split, whole = filled(rows, sizes, capacity), filled(rows, [len(rows)], capacity)
    assert torch.equal(split.rows(), whole.rows())
    assert len(split.rows()) == min(capacity, len(rows))
    assert split.seen == len(rows)


def test_every_row_is_equally_likely():
    rows = torch.arange(20.0)[:, None]
    counts = torch.zeros(20)
    for seed in range(1000):
        counts[filled(rows, [7, 13], 5, seed).rows()[:, 0].long()] += 1
    # Binomial with mean 250 and standard deviation 13.7.
    assert counts.sum() == 5000
    assert (counts - 250).abs().max() < 60


def test_memory_is_bounded_and_gradients_are_not_kept():
    reservoir = Reservoir(4, 3)
    for _ in range(50):
        reservoir.update(torch.randn(10, 3, requires_grad=True))
    assert reservoir.rows().shape == (4, 3)
    assert not reservoir.rows().requires_grad


def test_bad_use_is_told():
    with pytest.raises(ValueError, match="empty"):
        Reservoir(4, 3).rows()
    with pytest.raises(ValueError, match=r"shape \(n, 3\)"):
        Reservoir(4, 3).update(torch.randn(2, 2))
    with pytest.raises(ValueError, match="at least 1"):
        Reservoir(0, 3)
