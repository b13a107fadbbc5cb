"""Losses against naive forms, their weights, and those of classes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from remix.learning.losses import (
    LabelCounts,
    LossScales,
    balance_weights,
    balanced_cross_entropy,
    hard_distillation,
    head_cross_entropy,
    local_cross_entropy,
    old_new_weights,
    projected_feature_distillation,
    soft_distillation,
)
from remix.networks import LinearHead

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))


def draw(seed, *shape, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def draw_labels(seed, count, first, end):
    return torch.randint(first, end, (count,), generator=torch.Generator().manual_seed(seed))


def log_probability(logits, index):
    """ln softmax of one row, without log-sum-exp tricks."""
    return math.nan if not len(logits) else logits[index] - torch.stack([x.exp() for x in logits]).sum().log()


def same_value_and_gradient(fast, slow, *inputs):
    """Both functions of the same inputs give the same number and pull the same way."""
    results = []
    for function in (fast, slow):
        leaves = [x.clone().requires_grad_() for x in inputs]
        value = function(*leaves)
        results.append((value.detach(), torch.autograd.grad(value, leaves)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-10, atol=1e-12)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@given(SIZES)
@settings(max_examples=25, deadline=None)
def test_local_cross_entropy(sizes):
    count, old, new, seed = sizes
    labels = draw_labels(seed, count, old, old + new)

    def loops(logits):
        total = 0
        for n in range(count):
            among = old if new > 1 else 0  # a single new class is told from the old ones
            total = total - log_probability(logits[n, among:], int(labels[n]) - among)
        return total / count

    same_value_and_gradient(lambda x: local_cross_entropy(x, labels, old), loops, draw(seed, count, old + new))


def test_local_cross_entropy_does_not_touch_old_logits():
    logits = draw(0, 4, 7).requires_grad_()
    local_cross_entropy(logits, torch.tensor([3, 4, 5, 6]), 3).backward()
    assert not logits.grad[:, :3].any()
    assert logits.grad[:, 3:].all()


def test_local_cross_entropy_of_the_first_task_is_plain():
    logits, labels = draw(1, 5, 4), draw_labels(1, 5, 0, 4)
    torch.testing.assert_close(local_cross_entropy(logits, labels, 0), nn.functional.cross_entropy(logits, labels))


@given(SIZES)
@settings(max_examples=25, deadline=None)
def test_balanced_cross_entropy(sizes):
    count, old, new, seed = sizes
    labels = draw_labels(seed, count, 0, old + new)
    weights = draw(seed + 1, old + new).abs() + 0.1

    def loops(logits):
        total, mass = 0, 0
        for n in range(count):
            weight = weights[labels[n]]
            total, mass = total - weight * log_probability(logits[n], int(labels[n])), mass + weight
        return total / mass

    same_value_and_gradient(lambda x: balanced_cross_entropy(x, labels, weights), loops, draw(seed, count, old + new))


@given(SIZES, st.booleans())
@settings(max_examples=25, deadline=None)
def test_head_cross_entropy(sizes, weighted):
    count, dim, classes, seed = sizes
    labels = draw_labels(seed, count, 0, classes)
    features = draw(seed + 2, count, dim)
    sample_weights = draw(seed + 1, count).abs() if weighted else None

    def loops(matrix):
        total = 0
        for n in range(count):
            logits = torch.stack([sum(matrix[c, d] * features[n, d] for d in range(dim)) for c in range(classes)])
            weight = sample_weights[n] if weighted else 1.0
            total = total - weight * log_probability(logits, int(labels[n]))
        return total / count

    def fast(matrix):
        return head_cross_entropy(lambda f: f @ matrix.T, features, labels, sample_weights)

    same_value_and_gradient(fast, loops, draw(seed, classes, dim))


def test_head_cross_entropy_moves_the_head_and_not_the_features():
    head = LinearHead(6, [2, 3])
    features = torch.randn(4, 6, requires_grad=True)
    head_cross_entropy(head, features, torch.tensor([0, 1, 3, 4])).backward()
    assert features.grad is None
    assert all(parameter.grad.any() for parameter in head.parameters())


@given(SIZES)
@settings(max_examples=25, deadline=None)
def test_hard_distillation(sizes):
    count, old, new, seed = sizes
    teacher = draw(seed + 1, count, old)

    def loops(logits):
        total = 0
        for n in range(count):
            for c in range(old):
                total = total + (logits[n, c] - teacher[n, c]).abs()
        return total / (count * old)

    same_value_and_gradient(lambda x: hard_distillation(x, teacher), loops, draw(seed, count, old + new))


@given(SIZES, st.sampled_from([1.0, 2.0, 3.5]))
@settings(max_examples=25, deadline=None)
def test_soft_distillation(sizes, temperature):
    count, old, new, seed = sizes
    teacher = draw(seed + 1, count, old)

    def loops(logits):
        total = 0
        for n in range(count):
            for c in range(old):
                target = log_probability(teacher[n] / temperature, c).exp()
                total = total - target * log_probability(logits[n] / temperature, c)
        return total / count

    same_value_and_gradient(lambda x: soft_distillation(x, teacher, temperature), loops, draw(seed, count, old + new))


def test_soft_distillation_is_least_when_student_and_teacher_agree():
    teacher = draw(3, 6, 4)
    logits = teacher.clone().requires_grad_()
    least = soft_distillation(logits, teacher)
    (gradient,) = torch.autograd.grad(least, logits)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)
    softened = (teacher / 2).softmax(1)
    torch.testing.assert_close(least.detach(), -(softened * softened.log()).sum(1).mean())


def test_soft_distillation_pushes_new_classes_down_on_old_images():
    logits = draw(4, 5, 6).requires_grad_()
    soft_distillation(logits, draw(5, 5, 4)).backward()
    assert (logits.grad[:, 4:] > 0).all()


@given(SIZES)
@settings(max_examples=25, deadline=None)
def test_projected_feature_distillation(sizes):
    count, dim, old, seed = sizes
    teacher, matrix = draw(seed + 1, count, dim), draw(seed + 2, old, dim)

    def loops(features):
        total = 0
        for n in range(count):
            squares = 0
            for c in range(old):
                squares = squares + sum(matrix[c, d] * (features[n, d] - teacher[n, d]) for d in range(dim)) ** 2
            total = total + squares / old
        return total / count

    def fast(features):
        return projected_feature_distillation(features, teacher, lambda f: f @ matrix.T)

    same_value_and_gradient(fast, loops, draw(seed, count, dim))


def test_features_may_move_where_the_old_head_does_not_look():
    head = nn.Linear(3, 1).requires_grad_(False)
    head.weight.copy_(torch.tensor([[1.0, 0.0, 0.0]]))
    teacher = torch.randn(5, 3)
    assert projected_feature_distillation(teacher + torch.tensor([0.0, 4.0, -2.0]), teacher, head) == 0


def test_a_head_that_could_learn_is_refused():
    with pytest.raises(ValueError, match="requires_grad_"):
        projected_feature_distillation(torch.zeros(2, 3), torch.zeros(2, 3), nn.Linear(3, 2))


def test_no_gradient_reaches_a_teacher():
    for loss in (hard_distillation, soft_distillation):
        student, teacher = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
        loss(student, teacher).backward()
        assert teacher.grad is None
        assert student.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_single(dtype):
    logits, labels = draw(6, 8, 5).to(dtype), draw_labels(6, 8, 0, 5)
    wide = logits.float()
    for loss in (
        lambda x: local_cross_entropy(x, labels, 0),
        lambda x: balanced_cross_entropy(x, labels, torch.ones(5)),
        lambda x: head_cross_entropy(lambda f: f, x, labels),
        lambda x: hard_distillation(x, wide[:, :3].roll(1, 0)),
        lambda x: soft_distillation(x, wide[:, :3].roll(1, 0)),
        lambda x: projected_feature_distillation(x, x.roll(1, 0), lambda f: f),
    ):
        assert loss(logits).dtype == torch.float32
        assert torch.equal(loss(logits), loss(wide))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: local_cross_entropy(torch.zeros(2, 5), torch.tensor([1, 4]), 3), "from 3 to 4 here, got 1 to 4"),
        (lambda: local_cross_entropy(torch.zeros(1, 120), torch.tensor([0]), 100), "from 100 to 119"),
        (lambda: local_cross_entropy(torch.zeros(1, 3), torch.tensor([2]), 3), "old_classes must be from 0 to 2"),
        (lambda: local_cross_entropy(torch.zeros(2, 3), torch.tensor([2]), 1), r"got \(2, 3\) and \(1,\)"),
        (lambda: balanced_cross_entropy(torch.zeros(1, 3), torch.tensor([3]), torch.ones(3)), "from 0 to 2"),
        (lambda: balanced_cross_entropy(torch.zeros(1, 3), torch.tensor([2]), torch.ones(2)), "class_weights"),
        (lambda: head_cross_entropy(lambda f: f, torch.zeros(1, 3), torch.tensor([-100])), "got -100"),
        (
            lambda: head_cross_entropy(lambda f: f, torch.zeros(1, 3), torch.tensor([0]), torch.ones(2)),
            "sample_weights",
        ),
        (lambda: hard_distillation(torch.zeros(2, 3), torch.zeros(2, 4)), "teacher_logits"),
        (lambda: hard_distillation(torch.zeros(2, 3), torch.zeros(1, 3)), "teacher_logits"),
        (lambda: hard_distillation(torch.zeros(0, 3), torch.zeros(0, 3)), "N at least 1"),
        (lambda: soft_distillation(torch.zeros(2, 3), torch.zeros(2, 3), 0.0), "temperature"),
        (lambda: projected_feature_distillation(torch.zeros(2, 3), torch.zeros(2, 4), lambda f: f), r"\(2, 4\)"),
    ],
)
def test_labels_and_logits_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


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


def test_counts_and_shares_out_of_range_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        balance_weights(torch.tensor([3, 0]))
    with pytest.raises(ValueError, match="num_classes"):
        LabelCounts(0)
    with pytest.raises(ValueError, match="num_classes=4"):
        old_new_weights(torch.tensor([0]), 5, 4)


# new classes, old classes, local (f_ce), hard (f_hkd), relational (f_rkd), head (f_ft)
TABLE = [
    (20, 20, 0.966799, 0.518915, 1.729716, 1.933597),
    (20, 80, 0.483399, 1.037829, 3.459432, 0.966799),
    (10, 10, 1.040140, 0.387744, 1.292481, 2.080279),
    (10, 50, 0.465165, 0.867023, 2.890076, 0.930329),
    (10, 90, 0.346713, 1.163233, 3.877444, 0.693426),
    (5, 5, 1.164971, 0.271103, 0.903677, 2.329942),
    (5, 95, 0.267263, 1.181712, 3.939039, 0.534525),
    (40, 40, 0.920753, 0.658848, 2.196159, 1.841505),
    (40, 160, 0.460376, 1.317695, 4.392317, 0.920753),
    (20, 180, 0.322266, 1.556744, 5.189147, 0.644532),
    (10, 190, 0.238624, 1.690139, 5.633795, 0.477249),
]


@pytest.mark.parametrize(("new", "old", "local", "hard", "relational", "head"), TABLE)
def test_table(new, old, local, hard, relational, head):
    scales = LossScales(local=0.75, head=1.5, hard=0.15, relational=0.5).for_task(new, old)
    assert (scales.local, scales.hard, scales.relational, scales.head) == pytest.approx(
        (local, hard, relational, head), abs=6e-7
    )
    assert LossScales(local=0.5).for_task(new, old).local == pytest.approx(local * 2 / 3, abs=6e-7)
    assert LossScales(head=1.0).for_task(new, old).head == pytest.approx(head * 2 / 3, abs=6e-7)


def test_defaults_are_those_of_the_method():
    assert LossScales() == LossScales(local=0.75, head=1.5, hard=0.15, relational=0.5)


@pytest.mark.parametrize(("new", "old"), [(0, 10), (10, 0)])
def test_the_first_task_has_none(new, old):
    with pytest.raises(ValueError, match="later task"):
        LossScales().for_task(new, old)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_impossible_weights(weight):
    with pytest.raises(ValueError, match="relational"):
        LossScales(relational=weight)


def test_a_single_new_class_is_told_from_the_old_ones() -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]], requires_grad=True)
    labels = torch.tensor([2, 2])
    loss = local_cross_entropy(logits, labels, 2)
    loss.backward()
    assert torch.equal(loss, torch.nn.functional.cross_entropy(logits, labels))
    assert torch.equal(logits.grad.sign(), torch.tensor([[1.0, 1.0, -1.0]] * 2))
