import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remix.laplace import kernels, reference
from remix.laplace.plane import Axis, plane_form, plane_sums, quadrant_sums

NATIVE = kernels.native() is not None
PATHS = ["torch", *(["native"] if NATIVE else [])]
needs_native = pytest.mark.skipif(not NATIVE, reason="the native library is not built")


def points(size: int, seed: int = 0, spread: float = 3.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    source, first, second = torch.randn(3, size, generator=generator, dtype=torch.float64)
    return source, first * spread, second * spread


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 31, 64, 100, 1025])
def test_quadrant_sums_are_the_dense_sums(path, size):
    source, first, second = points(size, size)
    with kernels.use(path):
        got = quadrant_sums(source, first, second)
    torch.testing.assert_close(got, reference.quadrant_sums(source, first, second), rtol=1e-13, atol=1e-13)


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
    torch.testing.assert_close(got, reference.quadrant_sums(source, first, second), rtol=1e-13, atol=1e-13)


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
    torch.testing.assert_close(got[:2], reference.quadrant_sums(left, first, second)[:2], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(got[2:], reference.quadrant_sums(right, first, second)[2:], rtol=1e-13, atol=1e-13)


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
