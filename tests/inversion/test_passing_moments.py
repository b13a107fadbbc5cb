import pytest
import torch

from remix.inversion.passing_moments import passing_moments
from remix.inversion.terms import BatchAverage, LayerMoments, moments_about
from remix.laplace import kernels

PATHS = ["torch", pytest.param("native", marks=pytest.mark.skipif(kernels.native() is None, reason="not built"))]


def plain(x, axis, origin, full, then=None):
    rows = x.movedim(axis, -1).reshape(-1, x.shape[axis]) - origin
    second = (rows[:, :, None] * rows[:, None, :]).mean(0) if full else rows.square().mean(0)[None]
    if then is not None:
        shape = [-1 if i == axis else 1 for i in range(x.dim())]
        x = x * then[0].view(shape) + then[1].view(shape)
    return x, torch.cat([rows.mean(0)[None], second])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("used", [True, False], ids=["passed on", "only measured"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "as it is"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((6, 4), 1),  # pooled features
        ((6, 5, 1, 1), 1),
        ((6, 4, 1, 3), 1),
        ((3, 16, 8, 8), 1),
        ((2, 3, 33, 17), 1),  # several tiles with a rest, coordinates with a rest
        ((2, 18, 21, 23), 1),
        ((2, 130, 3, 3), 1),  # more coordinates than the native path takes
        ((3, 7, 5), 1),  # token positions
        ((3, 7, 5), 2),  # token channels
    ],
)
def test_moments_and_their_gradient_against_the_plain_way(generator, shape, axis, full, used, mapped, path):
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    origin = torch.randn(shape[axis], generator=generator, dtype=torch.float64)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    then = tuple(torch.randn(2, shape[axis], generator=generator, dtype=torch.float64)) if mapped else None
    last = [torch.channels_last] if len(shape) == 4 else []
    slope = None
    for memory in (torch.contiguous_format, *last):
        found = []
        for moments_of in (plain, passing_moments):
            leaf = x.clone(memory_format=memory).requires_grad_()
            with kernels.use(path):
                passed, moments = moments_of(leaf, axis, origin, full, then)
                if slope is None:
                    slope = torch.randn(moments.shape, generator=generator, dtype=torch.float64)
                total = (moments * slope).sum() + ((passed.sin() * weight).sum() if used else 0)
                found.append((passed, moments, torch.autograd.grad(total, leaf)[0]))
        for ours, expected in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("full", [True, False])
def test_a_far_mean_costs_no_digits_near_the_origin(generator, full, path):
    rows = torch.randn(50, 3, 4, 4, generator=generator)
    far = torch.full((3,), 1000.0)
    with kernels.use(path):
        stacked = passing_moments(rows + far[:, None, None], 1, far, full)[1]
    squares = stacked[1:].diagonal() if full else stacked[1]
    expected = rows.double().movedim(1, 3).reshape(-1, 3).var(0, correction=0)
    torch.testing.assert_close((squares - stacked[0].square()).double(), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("then", [None, (torch.full((3,), 2.0), torch.zeros(3))])
def test_an_activation_without_use_of_its_moments_gets_its_gradient_back(generator, path, then):
    x = torch.randn(4, 3, 2, 2, generator=generator).requires_grad_()
    with kernels.use(path):
        passed, _ = passing_moments(x, 1, torch.zeros(3), True, then)
        gradient = torch.autograd.grad(passed.square().sum(), x)[0]
    assert torch.equal(gradient, 2 * x if then is None else 8 * x)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_change_no_bit(generator, full, dtype):
    x = torch.randn(40, 16, 24, 24, generator=generator, dtype=dtype).requires_grad_()
    origin = torch.randn(16, generator=generator, dtype=dtype)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        passed, moments = passing_moments(x, 1, origin, full)
        total = moments.square().sum() + (3 * passed).sum()
        found.append((moments, *torch.autograd.grad(total, x)))
    torch.set_num_threads(before)
    if kernels.native() is not None:
        assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(other, found[0], strict=True))


def test_large_activations_in_single_precision(generator):
    """Many rows of float32: the sums must not drift."""
    x = 1 + torch.randn(64, 16, 32, 32, generator=generator)
    origin = torch.zeros(16)
    moments = passing_moments(x, 1, origin, True)[1]
    exact = plain(x.double(), 1, origin.double(), False)[1]
    torch.testing.assert_close(moments[0].double(), exact[0], rtol=2e-6, atol=0)
    torch.testing.assert_close(moments[1:].diagonal().double(), exact[1], rtol=2e-6, atol=0)


def test_moments_about_another_point(generator, layers):
    layer = layers["convolutions.1.bn:input:channels"]
    rows = torch.randn(40, layer.dim, generator=generator, dtype=torch.float64)
    mean = torch.randn(layer.dim, generator=generator, dtype=torch.float64)
    for full, second in ((True, lambda r: r.mT @ r / 40), (False, lambda r: r.square().mean(0))):
        average = LayerMoments(layer, full)
        moved = moments_about(mean, BatchAverage(average, average.passing(rows)[1]))
        torch.testing.assert_close(moved[0], (rows - mean).mean(0))
        torch.testing.assert_close(moved[1], second(rows - mean))
