import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remix.laplace import LaplaceCovariance, kernels, reference
from remix.laplace.plane import Axis, inner, plane_form, plane_sums

NATIVE = kernels.native() is not None
PATHS = ["torch", *(["native"] if NATIVE else [])]
needs_native = pytest.mark.skipif(not NATIVE, reason="the native library is not built")


def points(size: int, seed: int = 0, spread: float = 3.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    source, first, second = torch.randn(3, size, generator=generator, dtype=torch.float64)
    return source, first * spread, second * spread


def quadrant_sums(source: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return plane_sums(source, source, Axis.of(first), Axis.of(second))


def dense_sums(source: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The same (4, D) by dense matrices. Ties in a coordinate are broken by its stable sort order."""
    size = source.shape[0]
    index = torch.arange(size)
    rank1, rank2 = (torch.empty(size, dtype=torch.int64) for _ in range(2))
    rank1[torch.argsort(first, stable=True)] = index
    rank2[torch.argsort(second, stable=True)] = index
    terms = reference.kernel(first) * reference.kernel(second) * source[None, :]
    before1 = rank1[None, :] < rank1[:, None]
    before2 = rank2[None, :] < rank2[:, None]
    off = ~torch.eye(size, dtype=torch.bool)
    masks = (before1 & before2, before1 & ~before2, ~before1 & before2, ~before1 & ~before2)
    return torch.stack([(terms * (mask & off)).sum(1) for mask in masks])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 31, 64, 100, 1025])
def test_quadrant_sums_are_the_dense_sums(path, size):
    source, first, second = points(size, size)
    with kernels.use(path):
        got = quadrant_sums(source, first, second)
    torch.testing.assert_close(got, dense_sums(source, first, second), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("path", PATHS)
def test_chunks_join_where_several_tasks_meet(path):
    """Above 16,384 points the native path merges the chunks of several tasks: linear sums check it without D x D."""
    size = 40_000
    source, first, second = points(size, 1)
    with kernels.use(path):
        got = quadrant_sums(source, first, torch.zeros_like(second)).sum(0) + source
    order = torch.argsort(first)
    with kernels.use(path):
        same = quadrant_sums(source[order], first[order], 0 * second).sum(0) + source[order]
    torch.testing.assert_close(got[order], same, rtol=1e-11, atol=1e-11)
    probe = torch.arange(0, size, 997)
    kernel = torch.exp(-(first[probe, None] - first[None, :]).abs())
    torch.testing.assert_close(got[probe], kernel @ source, rtol=1e-11, atol=1e-10)


@needs_native
def test_native_and_torch_paths_agree_at_scale():
    source, first, second = points(50_001, 2, spread=2000.0)
    with kernels.use("native"):
        native = quadrant_sums(source, first, second)
    with kernels.use("torch"):
        other = quadrant_sums(source, first, second)
    torch.testing.assert_close(native, other, rtol=1e-11, atol=1e-12)


@needs_native
def test_every_number_of_threads_gives_the_same_bits():
    source, first, second = points(70_000, 3, spread=500.0)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(quadrant_sums(source, first, second))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_ties_and_huge_gaps(path, data):
    size = data.draw(st.integers(1, 40))
    values = st.sampled_from([0.0, 0.0, 1.0, 1.5, -2.0, 700.0, 1e6, -1e9])
    first, second = (torch.tensor(data.draw(st.lists(values, min_size=size, max_size=size))).double() for _ in range(2))
    source = points(size, 5)[0]
    with kernels.use(path):
        got = quadrant_sums(source, first, second)
    torch.testing.assert_close(got, dense_sums(source, first, second), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("path", PATHS)
def test_infinite_gaps_separate_exactly(path):
    """Points on the two sides of an infinite gap do not see each other: two blocks are two problems."""
    source, first, second = points(50, 6)
    axis = Axis.of(first)
    gap = axis.gap.clone()
    gap[20] = math.inf
    with kernels.use(path):
        got = plane_sums(source, source, Axis(axis.order, gap), Axis.of(second))
        for block in (axis.order[:20].sort().values, axis.order[20:].sort().values):
            alone = quadrant_sums(source[block], first[block], second[block])
            torch.testing.assert_close(got[:, block], alone, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("path", PATHS)
def test_two_sources_travel_in_two_directions(path):
    left, first, second = points(60, 7)
    right = points(60, 8)[0]
    with kernels.use(path):
        got = plane_sums(left, right, Axis.of(first), Axis.of(second))
    torch.testing.assert_close(got[:2], dense_sums(left, first, second)[:2], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(got[2:], dense_sums(right, first, second)[2:], rtol=1e-13, atol=1e-13)


def test_positions_stay_accurate_on_a_long_axis():
    """Half a million far gaps before it do not blur a short distance."""
    gap = torch.full((500_003,), 900.3, dtype=torch.float64)
    gap[-2:] = torch.tensor([0.1, 1e-9], dtype=torch.float64)
    position = Axis(torch.arange(len(gap)), gap).positions()
    distance = (position[-1] - position[-3]).sum()
    assert float(distance) == pytest.approx(0.1 + 1e-9, abs=2e-13)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("same_order", [False, True])
def test_gradients_of_the_form(path, same_order):
    left, first, second = points(12, 9)
    right = points(12, 10)[0]
    second = 1.7 * first + 1 if same_order else second

    def form(left, right, first, second):
        return plane_form(left, right, Axis.of(first), Axis.of(second))

    with kernels.use(path):
        assert torch.autograd.gradcheck(form, [v.clone().requires_grad_() for v in (left, right, first, second)])


# --- inner products ---


def vectors(size: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    diag, weight, coord = torch.randn(3, size, generator=generator, dtype=torch.float64)
    return [diag.abs() + 0.1, weight, 3 * coord]


def dense_inner(first: list[torch.Tensor], second: list[torch.Tensor]) -> torch.Tensor:
    return (reference.dense(*first) * reference.dense(*second)).sum()


def pair(size: int, same_order: bool = False) -> list[torch.Tensor]:
    both = vectors(size, 1) + vectors(size, 2)
    if same_order:
        both[5] = 0.3 * both[2] - 4
    return [v.requires_grad_() for v in both]


def assert_matches_dense(both: list[torch.Tensor]) -> None:
    value = inner(LaplaceCovariance(*both[:3]), LaplaceCovariance(*both[3:]))
    wanted = dense_inner(both[:3], both[3:])
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
    torch.testing.assert_close(value, dense_inner(both[:3], both[3:]), rtol=1e-12, atol=0)


def test_it_is_an_inner_product():
    one, two = (LaplaceCovariance(*vectors(50, seed)) for seed in (1, 2))
    torch.testing.assert_close(inner(one, two), inner(two, one), rtol=1e-13, atol=0)
    torch.testing.assert_close(inner(one, one), one.to_dense().square().sum(), rtol=1e-13, atol=0)
    torch.testing.assert_close(one.inner(two), inner(one, two), rtol=0, atol=0)
    assert float(inner(one, two)) ** 2 <= float(inner(one, one) * inner(two, two))


def test_batches_broadcast_and_float32_is_accumulated_in_float64():
    batch = [torch.stack(v) for v in zip(vectors(30, 1), vectors(30, 2), strict=True)]
    single = LaplaceCovariance(*vectors(30, 3))
    got = inner(LaplaceCovariance(*batch), single)
    wanted = [dense_inner([v[k] for v in batch], vectors(30, 3)) for k in range(2)]
    torch.testing.assert_close(got, torch.stack(wanted), rtol=1e-12, atol=0)
    small = [v.float() for v in vectors(30, 1)]
    value = inner(LaplaceCovariance(*small), LaplaceCovariance(*small))
    assert value.dtype == torch.float32
    exact = dense_inner([v.double() for v in small], [v.double() for v in small])
    assert float(value) == pytest.approx(float(exact), rel=1e-7)


def test_what_does_not_fit_is_named():
    one = LaplaceCovariance(*vectors(5, 1))
    with pytest.raises(ValueError, match="second has dimension 6, expected 5"):
        inner(one, LaplaceCovariance(*vectors(6, 1)))
    with pytest.raises(ValueError, match=r"second has dtype torch\.float32"):
        inner(one, LaplaceCovariance(*(v.float() for v in vectors(5, 1))))
