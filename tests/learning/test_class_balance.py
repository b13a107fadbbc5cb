import pytest
import torch

from remix.learning.losses import LabelCounts, balance_weights, old_new_weights


def test_weights_are_those_of_the_method():
    counts = torch.tensor([1, 501, 20, 3])
    raw = [sum(counts.tolist()) / max(count, 1) for count in counts.tolist()]
    expected = torch.tensor([weight / min(raw) for weight in raw])
    torch.testing.assert_close(balance_weights(counts), expected)


def test_counts_start_at_one_and_add_up():
    counts = LabelCounts(4)
    assert torch.equal(counts.weights(), torch.ones(4))
    counts.add(torch.tensor([0, 0, 2]))
    counts.add(torch.tensor([0, 2, 1]))
    counts.add(torch.tensor([], dtype=torch.int64))
    assert counts.counts.tolist() == [4, 2, 3, 1]
    torch.testing.assert_close(counts.weights(), torch.tensor([1, 2, 4 / 3, 4]))


def test_a_wrong_label_counts_nothing():
    counts = LabelCounts(3)
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="from 0 to 2"):
            counts.add(torch.tensor(labels))
    assert counts.counts.tolist() == [1, 1, 1]


def test_old_and_new_samples():
    weights = old_new_weights(torch.tensor([0, 29, 30, 39]), old_classes=30, num_classes=40)
    torch.testing.assert_close(weights, torch.tensor([0.75, 0.75, 0.25, 0.25]))


def test_refusals():
    with pytest.raises(ValueError, match="at least 1"):
        balance_weights(torch.tensor([3, 0]))
    with pytest.raises(ValueError, match="num_classes"):
        LabelCounts(0)
    with pytest.raises(ValueError, match="num_classes=4"):
        old_new_weights(torch.tensor([0]), 5, 4)
