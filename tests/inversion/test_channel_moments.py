import pytest
import torch

from remix.inversion.channel_moments import centred_moments
from remix.inversion.measurements import Moments


@pytest.mark.parametrize("positions", [1, 3, 8, 25])
@pytest.mark.parametrize("full", [True, False])
def test_moments_and_their_gradient_against_the_plain_way(generator, positions, full):
    x = torch.randn(6, 4, positions, generator=generator, dtype=torch.float64).requires_grad_()
    origin = torch.randn(4, generator=generator, dtype=torch.float64)
    mean, second = centred_moments(x, origin, full)
    rows = x.movedim(1, 2).reshape(-1, 4) - origin
    products = rows[:, :, None] * rows[:, None, :] if full else rows.square()
    torch.testing.assert_close(mean, rows.mean(0))
    torch.testing.assert_close(second, products.mean(0))
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in (mean, second)]
    ours = (mean * weights[0]).sum() + (second * weights[1]).sum()
    plain = (rows.mean(0) * weights[0]).sum() + (products.mean(0) * weights[1]).sum()
    torch.testing.assert_close(torch.autograd.grad(ours, x)[0], torch.autograd.grad(plain, x)[0])


@pytest.mark.parametrize("full", [True, False])
def test_a_far_mean_costs_no_digits_near_the_origin(generator, full):
    rows = torch.randn(50, 3, 16, generator=generator)
    far = torch.full((3,), 1000.0)
    moments = Moments(*centred_moments(rows + far[:, None], far, full))
    expected = rows.double().movedim(1, 2).reshape(-1, 3).var(0, correction=0)
    torch.testing.assert_close(moments.variance.double(), expected, rtol=1e-3, atol=0)


def test_moments_about_another_point(generator):
    rows = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    shift = torch.randn(5, generator=generator, dtype=torch.float64)
    for second in (lambda r: r.mT @ r / 40, lambda r: r.square().mean(0)):
        moved = Moments(rows.mean(0), second(rows)).about(shift)
        torch.testing.assert_close(moved.mean, (rows + shift).mean(0))
        torch.testing.assert_close(moved.second, second(rows + shift))
        torch.testing.assert_close(moved.variance, rows.var(0, correction=0))
