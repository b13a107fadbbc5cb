from __future__ import annotations

import pytest
import torch

from remix.networks import GrowingHead


def test_growing_leaves_old_rows_as_they_are():
    head = GrowingHead(8)
    head.grow(3)
    old = head.classifier(0)
    rows = old.weight.detach().clone()
    head.grow(5)
    assert head.classifier(0) is old
    assert torch.equal(old.weight, rows)
    assert (head.task_sizes, head.num_classes) == ((3, 5), 8)


def test_logits_are_the_classifiers_side_by_side():
    head = GrowingHead(8, [3, 5, 2])
    x = torch.randn(4, 8)
    parts = [x @ head.classifier(task).weight.T for task in range(3)]
    torch.testing.assert_close(head.logits(x), torch.cat(parts, 1))
    torch.testing.assert_close(head.logits(x, tasks=range(2)), torch.cat(parts[:2], 1))
    torch.testing.assert_close(head.logits(x, tasks=[2, 0]), torch.cat([parts[2], parts[0]], 1))
    assert torch.equal(head(x), head.logits(x))


def test_a_hundred_classes_cost_6400_numbers():
    head = GrowingHead(64, [10] * 10)
    assert sum(parameter.numel() for parameter in head.parameters()) == 6_400


def test_initial_weights_are_normal_with_deviation_a_thousandth():
    head = GrowingHead(500, [400], generator=torch.Generator().manual_seed(0))
    weight = head.classifier(0).weight
    assert weight.mean().abs() < 1e-5
    assert weight.std().item() == pytest.approx(1e-3, rel=0.01)
    again = GrowingHead(500, [400], generator=torch.Generator().manual_seed(0))
    assert torch.equal(weight, again.classifier(0).weight)


def test_bias_is_an_option_and_starts_at_zero():
    assert GrowingHead(4, [2]).classifier(0).bias is None
    assert torch.equal(GrowingHead(4, [2], bias=True).classifier(0).bias, torch.zeros(2))


def test_new_classifiers_follow_the_heads_dtype():
    head = GrowingHead(4).to(torch.float64)
    assert head.grow(2).weight.dtype == torch.float64


def test_state_holds_the_classifiers_only_and_loads_into_a_head_of_the_same_sizes():
    head = GrowingHead(4, [2, 3])
    assert list(head.state_dict()) == ["classifiers.0.weight", "classifiers.1.weight"]
    copy = GrowingHead(4, head.task_sizes)
    copy.load_state_dict(head.state_dict())
    assert torch.equal(copy.logits(torch.eye(4)), head.logits(torch.eye(4)))


def test_bad_input_is_refused():
    head = GrowingHead(4)
    with pytest.raises(RuntimeError, match=r"no classes yet: call grow\(n\) first"):
        head.logits(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="at least one class"):
        head.grow(0)
    head.grow(2)
    with pytest.raises(ValueError, match=r"features must be \(N, 4\), got \(1, 5\)"):
        head.logits(torch.zeros(1, 5))
    with pytest.raises(IndexError, match=r"the head has 1 tasks \(0\.\.0\), asked for task 1"):
        head.classifier(1)
    with pytest.raises(ValueError, match="feature_dim must be at least 1"):
        GrowingHead(0)
