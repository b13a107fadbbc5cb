import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remix.laplace import LaplaceCovariance, kernels, reference
from remix.laplace.inner import frobenius_distance, inner

PATHS = ["torch", *(["native"] if kernels.native() is not None else [])]


def vectors(size: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    diag, weight, coord = torch.randn(3, size, generator=generator, dtype=torch.float64)
    return [diag.abs() + 0.1, weight, 3 * coord]


def pair(size: int, same_order: bool = False) -> list[torch.Tensor]:
    both = vectors(size, 1) + vectors(size, 2)
    if same_order:
        both[5] = 0.3 * both[2] - 4
    return [v.requires_grad_() for v in both]


def assert_matches_dense(both: list[torch.Tensor]) -> None:
    value = inner(LaplaceCovariance(*both[:3]), LaplaceCovariance(*both[3:]))
    wanted = reference.inner(tuple(both[:3]), tuple(both[3:]))
    torch.testing.assert_close(value, wanted, rtol=1e-12, atol=0)
    gradients = torch.autograd.grad(value, both)
    for got, right in zip(gradients, torch.autograd.grad(wanted, both), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-12 * float(right.abs().max() + 1))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("same_order", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 40, 300])
def test_value_and_all_six_gradients_are_the_dense_ones(path, same_order, size):
    with kernels.use(path):
        assert_matches_dense(pair(size, same_order))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_ties_zero_weights_and_far_groups(data):
    size = data.draw(st.integers(1, 20))
    both = vectors(size, 1) + vectors(size, 2)
    choice = st.lists(st.sampled_from([0.0, 0.0, 1.0, -3.0, 800.0, 1e5]), min_size=size, max_size=size)
    for k in (1, 4):
        both[k] = both[k] * (torch.rand(size, generator=torch.Generator().manual_seed(k)) < 0.7)
    for k in (2, 5):
        both[k] = torch.tensor(data.draw(choice)).double()
    value = inner(LaplaceCovariance(*both[:3]), LaplaceCovariance(*both[3:]))
    torch.testing.assert_close(value, reference.inner(tuple(both[:3]), tuple(both[3:])), rtol=1e-12, atol=0)


def test_it_is_an_inner_product():
    one, two = (LaplaceCovariance(*vectors(50, seed)) for seed in (1, 2))
    torch.testing.assert_close(inner(one, two), inner(two, one), rtol=1e-13, atol=0)
    torch.testing.assert_close(inner(one, one), one.to_dense().square().sum(), rtol=1e-13, atol=0)
    torch.testing.assert_close(one.inner(two), inner(one, two), rtol=0, atol=0)
    assert float(inner(one, two)) ** 2 <= float(inner(one, one) * inner(two, two))


def test_distance_is_that_of_the_matrices():
    one, two = (LaplaceCovariance(*vectors(50, seed)) for seed in (1, 2))
    wanted = (one.to_dense() - two.to_dense()).norm() / two.to_dense().norm()
    torch.testing.assert_close(frobenius_distance(one, two), wanted, rtol=1e-12, atol=0)
    assert float(frobenius_distance(one, one)) < 1e-7


def test_batches_broadcast_and_float32_is_accumulated_in_float64():
    batch = [torch.stack(v) for v in zip(vectors(30, 1), vectors(30, 2), strict=True)]
    single = LaplaceCovariance(*vectors(30, 3))
    got = inner(LaplaceCovariance(*batch), single)
    wanted = [reference.inner(tuple(v[k] for v in batch), tuple(vectors(30, 3))) for k in range(2)]
    torch.testing.assert_close(got, torch.stack(wanted), rtol=1e-12, atol=0)
    small = [v.float() for v in vectors(30, 1)]
    value = inner(LaplaceCovariance(*small), LaplaceCovariance(*small))
    assert value.dtype == torch.float32
    exact = reference.inner(tuple(v.double() for v in small), tuple(v.double() for v in small))
    assert float(value) == pytest.approx(float(exact), rel=1e-7)


def test_what_does_not_fit_is_named():
    one = LaplaceCovariance(*vectors(5, 1))
    with pytest.raises(ValueError, match="second has dimension 6, expected 5"):
        inner(one, LaplaceCovariance(*vectors(6, 1)))
    with pytest.raises(ValueError, match=r"second has dtype torch\.float32"):
        inner(one, LaplaceCovariance(*(v.float() for v in vectors(5, 1))))
