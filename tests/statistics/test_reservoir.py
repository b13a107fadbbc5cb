from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remix.statistics import Reservoir


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
