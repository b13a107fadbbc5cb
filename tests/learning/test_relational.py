"""The angle loss against loops over triples, and what it must not depend on."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remix.learning import relational
from remix.learning.relational import RelationalProjectors, angle_loss

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))


def draw(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def cosine(points, i, j, k):
    """Cosine of the angle at i; 0 where it has no meaning."""
    one, other = points[j] - points[i], points[k] - points[i]
    if not one.any() or not other.any():
        return points.new_zeros(())
    return (one / one.norm()) @ (other / other.norm())


def loops(student, teacher):
    count, total = len(student), 0
    for i in range(count):
        for j in range(count):
            for k in range(count):
                total = total + (cosine(student, i, j, k) - cosine(teacher, i, j, k)).abs()
    return total / count**3


def tensors(student, teacher):
    """The loss by way of all B x B x B x dim numbers, as papers write it."""
    cosines = []
    for points in (student, teacher):
        units = torch.nn.functional.normalize(points[None] - points[:, None], dim=2, eps=1e-12)
        cosines.append((units[:, :, None, :] * units[:, None, :, :]).sum(3))
    return (cosines[0] - cosines[1]).abs().mean()


def value_and_gradients(function, student, teacher):
    leaves = [student.clone().requires_grad_(), teacher.clone().requires_grad_()]
    value = function(*leaves)
    return value.detach(), *torch.autograd.grad(value, leaves)


@given(SHAPES)
@settings(max_examples=20, deadline=None)
def test_value_and_gradient_are_those_of_loops(shape):
    # In one dimension every cosine is 1 or -1 and there is nothing to pull on: the loops differ by rounding of signs.
    count, dim, other_dim, seed = shape
    student, teacher = draw(seed, count, dim + 1), draw(seed + 1, count, other_dim + 1)
    if count == 1:
        assert angle_loss(student, teacher) == 0
        return
    for one, other in zip(
        value_and_gradients(angle_loss, student, teacher), value_and_gradients(loops, student, teacher), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_published_value():
    teacher = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    student = torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    assert angle_loss(student, teacher).item() == pytest.approx(0.1047565602, abs=1e-10)


@pytest.mark.parametrize("count", [2, 31, 130])
def test_large_batches_agree_with_the_whole_tensor(count):
    student, teacher = draw(0, count, 7), draw(1, count, 5)
    for one, other in zip(
        value_and_gradients(angle_loss, student, teacher), value_and_gradients(tensors, student, teacher), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-11)


def test_chunks_change_nothing(monkeypatch):
    student, teacher = draw(0, 20, 6), draw(1, 20, 6)
    whole = value_and_gradients(angle_loss, student, teacher)
    for chunk in (1, 1200, 2800):
        monkeypatch.setattr(relational, "_CHUNK", chunk)
        for one, other in zip(value_and_gradients(angle_loss, student, teacher), whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@given(st.integers(0, 2**31), st.floats(0.01, 100), st.floats(-100, 100))
@settings(max_examples=20, deadline=None)
def test_moving_turning_and_scaling_change_no_angle(seed, factor, shift):
    student, teacher = draw(seed, 8, 5), draw(seed + 1, 8, 5)
    rotation = torch.linalg.qr(draw(seed + 2, 5, 5)).Q
    moved = factor * (student @ rotation) + shift
    assert angle_loss(moved, student).item() == pytest.approx(0, abs=1e-9)
    assert angle_loss(moved, teacher).item() == pytest.approx(angle_loss(student, teacher).item(), abs=1e-9)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    assert angle_loss(student[order], teacher[order]).item() == pytest.approx(angle_loss(student, teacher).item())


def test_coincident_points_have_no_angle_and_no_pull():
    student, teacher = draw(0, 6, 4), draw(1, 6, 4)
    student[3] = student[1]
    assert angle_loss(student, teacher).item() == pytest.approx(loops(student, teacher).item(), abs=1e-12)
    _, pull, teacher_pull = value_and_gradients(angle_loss, student, teacher)
    _, without, _ = value_and_gradients(angle_loss, draw(0, 6, 4), teacher)
    assert pull.abs().max() < 10 * without.abs().max()
    assert teacher_pull.isfinite().all()


def test_all_points_in_one_place():
    same = torch.ones(5, 3, requires_grad=True)
    loss = angle_loss(same, draw(0, 5, 3))
    loss.backward()
    assert loss.item() == pytest.approx(tensors(same.double(), draw(0, 5, 3)).item(), abs=1e-6)
    assert not same.grad.any()


@pytest.mark.parametrize(("gap", "offset"), [(1e-3, 0.0), (1e-6, 0.0), (1e-9, 0.0), (1e-2, 1e4)])
def test_a_much_nearer_pair_in_single_precision(gap, offset):
    student, teacher = draw(0, 6, 4), draw(1, 6, 4).float()
    student[1] = 0
    student[3] = gap * draw(2, 4)
    student = (student + offset).float()
    assert not torch.equal(student[3], student[1])
    results = value_and_gradients(angle_loss, student, teacher)
    expected = value_and_gradients(loops, student.double(), teacher.double())
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)


def test_teacher_without_gradient():
    student, teacher = draw(0, 9, 4).requires_grad_(), draw(1, 9, 4)
    (only,) = torch.autograd.grad(angle_loss(student, teacher), student)
    _, both, _ = value_and_gradients(angle_loss, student.detach(), teacher)
    assert torch.equal(only, both)
    assert not angle_loss(student.detach(), teacher).requires_grad


def test_dtypes():
    for dtype, result in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64,) * 2):
        student = draw(0, 5, 3).to(dtype).requires_grad_()
        loss = angle_loss(student, draw(1, 5, 3).to(dtype))
        loss.backward()
        assert loss.dtype == result
        assert student.grad.dtype == dtype


def test_projectors_are_both_trained_and_the_teacher_is_not():
    projectors = RelationalProjectors(64, generator=torch.Generator().manual_seed(0))
    assert sum(parameter.numel() for parameter in projectors.parameters()) == 16_640
    student, teacher = torch.randn(5, 64, requires_grad=True), torch.randn(5, 64, requires_grad=True)
    projectors(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad.any()
    assert projectors.student.weight.grad.any()
    assert projectors.teacher.weight.grad.any()


def test_projectors_follow_their_seed():
    one, same, other = (RelationalProjectors(8, 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.student.weight, same.student.weight)
    assert not torch.equal(one.student.weight, other.student.weight)
    assert not torch.equal(one.student.weight, one.teacher.weight)


def test_works_under_autocast():
    projectors = RelationalProjectors(8, 4, generator=torch.Generator().manual_seed(0))
    student, teacher = draw(0, 6, 8).float().requires_grad_(), draw(1, 6, 8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = projectors(student, teacher)
    loss.backward()
    assert loss.item() == pytest.approx(projectors(student, teacher).item(), abs=0.02)
    assert student.grad.isfinite().all()


@pytest.mark.parametrize(
    ("student", "teacher"),
    [((0, 3), (0, 3)), ((4, 3), (5, 3)), ((4,), (4, 3)), ((4, 3), (4, 3, 1))],
)
def test_features_that_do_not_fit_are_refused(student, teacher):
    with pytest.raises(ValueError, match="must be"):
        angle_loss(torch.zeros(student), torch.zeros(teacher))


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation makes."""

    largest = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self.largest = max(self.largest, each.untyped_storage().nbytes() // each.element_size())
        return result


def test_no_large_tensor_is_made():
    count, dim = 96, 40
    student, teacher = draw(0, count, dim).requires_grad_(), draw(1, count, dim).requires_grad_()
    with LargestTensor() as made:
        angle_loss(student, teacher).backward()
    assert made.largest <= max(relational._CHUNK, count**2)
    assert made.largest < count**3 / 6
