"""Draws: their distribution, repeatability and gradients."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from dense_twin import assert_near, draw

from remix.laplace import LaplaceCovariance, LaplaceNormal


def make(dim: int = 6, batch: tuple[int, ...] = ()) -> LaplaceNormal:
    _, loc, *parameters = (v.double() for v in draw((), dim, batch))
    return LaplaceNormal(loc, LaplaceCovariance(*parameters))


def test_covariance_of_many_draws() -> None:
    normal = make()
    count = 200_000
    draws = normal.sample((count,), generator=torch.Generator().manual_seed(0))
    # Standard errors of an entry: of the mean sqrt(v / n), of the covariance sqrt((v_i v_j + c_ij^2) / n).
    sigma, variance = normal.covariance_matrix, normal.variance
    assert ((draws.mean(0) - normal.mean).abs() < 5 * (variance / count).sqrt()).all()
    deviation = ((variance[:, None] * variance + sigma**2) / count).sqrt()
    assert ((draws.T.cov() - sigma).abs() < 5 * deviation).all()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("path", ["native", "torch"], indirect=True)  # the reference path draws the torch path's noise
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_whitened_draws_are_standard_normal_noise(dtype: torch.dtype, path: str) -> None:
    """Every moment, the tails and the independence of positions, rows and covariances of a batch."""
    dim, count = 33, 10_000
    normal = make(dim=dim, batch=(2,))
    normal = LaplaceNormal(
        normal.loc.to(dtype), LaplaceCovariance(*(v.to(dtype) for v in normal.covariance.parameters))
    )
    draws = normal.sample((count,), generator=generator(4))
    noise = normal.covariance.whiten(draws - normal.loc)
    assert_near(normal.covariance.unwhiten(noise) + normal.loc, draws)
    flat = noise.double().flatten()
    assert scipy.stats.kstest(flat.numpy(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest(flat.abs()[flat.abs() > 2.8].numpy(), _tail(2.8)).pvalue > 1e-3
    for power, expected in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)) / len(flat))
        assert abs(float((flat**power).mean()) - expected) < 5 * spread, f"moment {power}"
    columns = noise.double().flatten(1)
    assert float((columns.T @ columns / count - torch.eye(2 * dim, dtype=torch.float64)).abs().max()) < 6 / count**0.5
    rows = columns[:1000]
    assert float((rows @ rows.T / (2 * dim)).fill_diagonal_(0).abs().max()) < 7 / (2 * dim) ** 0.5
    assert abs(float((columns[1:] * columns[:-1]).mean())) < 5 / columns.numel() ** 0.5


def _tail(start: float) -> Callable[[np.ndarray], np.ndarray]:
    """Distribution function of |z| given that it is beyond ``start``."""
    return lambda z: 1 - scipy.stats.norm.sf(z) / scipy.stats.norm.sf(start)


def test_draws_whiten_to_the_noise_they_came_from(path: str) -> None:
    normal = make(dim=40, batch=(3,))
    one = torch.ones(3, 40, dtype=torch.float64)
    # The same order of coordinates, so that each gets the same noise.
    white = LaplaceNormal(0 * one, LaplaceCovariance(one, 0 * one, normal.coord))
    noise, draws = (p.rsample((7,), generator=torch.Generator().manual_seed(4)) for p in (white, normal))
    assert_near(normal.covariance.whiten(draws - normal.loc), noise, 1e-12)
    assert_near(normal.covariance.unwhiten(normal.covariance.whiten(draws)), draws, 1e-12)


def test_draws_are_the_same_with_gradients_and_for_any_number_of_threads(path: str) -> None:
    plain = make(dim=3000)
    tracked = LaplaceNormal(
        plain.loc, LaplaceCovariance(*(v.clone().requires_grad_() for v in plain.covariance.parameters))
    )
    threads = torch.get_num_threads()
    draws = []
    for count, normal in ((1, plain), (2, plain), (3, tracked)):
        torch.set_num_threads(count)
        draws.append(normal.rsample((33,), generator=torch.Generator().manual_seed(4)).detach())
    torch.set_num_threads(threads)
    assert torch.equal(draws[0], draws[1])
    assert_near(draws[2], draws[0], 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_standard_normal_and_independent(dtype: torch.dtype, path: str) -> None:
    one = torch.ones(20_000, dtype=dtype)
    white = LaplaceNormal(0 * one, LaplaceCovariance(one, 0 * one, 0 * one))
    z = white.sample((50,), generator=torch.Generator().manual_seed(0)).double()
    count = z.numel()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(z.pow(power).mean() - moment) < 5 * (variance / count) ** 0.5
    for shifted in (z[:, :-1] * z[:, 1:], z[:, :-2] * z[:, 2:], z[:-1] * z[1:]):
        assert abs(shifted.mean()) < 5 / count**0.5
    squares = z.square() - 1
    assert abs((squares[:, :-1] * squares[:, 1:]).mean()) < 5 * 2 / count**0.5
    assert 4.5 < z.abs().max() < 6.5
    grid = torch.linspace(-3, 3, 61, dtype=torch.float64)
    empirical = torch.searchsorted(z.flatten().sort().values, grid) / count
    assert (empirical - torch.special.ndtr(grid)).abs().max() < 2 / count**0.5


def test_mean_of_any_memory_layout() -> None:
    normal = make(dim=40)
    spread = torch.stack([normal.loc, normal.loc + 1], -1)[:, 0]
    shifted = LaplaceNormal(spread, normal.covariance)
    assert torch.equal(shifted.sample((3,), generator=generator()), normal.sample((3,), generator=generator()))


@pytest.mark.parametrize("dim", [1, 2, 3, 17])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (9,), (2, 3)])
def test_shapes_of_draws(dim: int, shape: tuple[int, ...], path: str) -> None:
    draws = make(dim=dim, batch=(2,)).sample(shape)
    assert draws.shape == (*shape, 2, dim)
    assert torch.isfinite(draws).all()


def test_generator_makes_draws_repeatable() -> None:
    normal = make()
    first, again, other = (normal.sample((3,), generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.isin(first, other).any()
    shared = torch.Generator().manual_seed(1)
    assert torch.equal(normal.sample((3,), generator=shared), first)
    assert not torch.isin(normal.sample((3,), generator=shared), first).any()
    state = torch.random.get_rng_state()
    normal.sample((3,), generator=torch.Generator())
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(7)
    once = normal.sample()
    torch.manual_seed(7)
    assert torch.equal(once, normal.sample())


def test_rsample_is_differentiable_and_sample_is_not() -> None:
    inputs = [v.double().requires_grad_() for v in draw((), 6)[1:]]

    def draws(loc: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return LaplaceNormal(loc, LaplaceCovariance(*parameters)).rsample((3,), generator=generator)

    assert torch.autograd.gradcheck(draws, inputs)
    assert not LaplaceNormal(inputs[0], LaplaceCovariance(*inputs[1:])).sample().requires_grad


def test_pathwise_gradient_estimates_the_gradient_of_an_expectation() -> None:
    """d/d diag_k of E |x|^2 is 1, d/d weight_k is 2 w_k."""
    normal = make()
    leaves = [v.clone().requires_grad_() for v in normal.covariance.tensors().values()]
    draws = LaplaceNormal(0 * normal.loc, LaplaceCovariance(*leaves)).rsample(
        (100_000,), generator=torch.Generator().manual_seed(0)
    )
    draws.square().sum(-1).mean().backward()
    assert_near(leaves[0].grad, torch.ones(6, dtype=torch.float64), 0.03)
    assert_near(leaves[1].grad, 2 * leaves[1].detach(), 0.03)


def test_half_precision_draws_and_densities_are_float32() -> None:
    _, loc, *parameters = (v.bfloat16() for v in draw((), 6))
    normal = LaplaceNormal(loc, LaplaceCovariance(*parameters))
    x = normal.sample((3,))
    assert x.dtype == torch.float32
    assert normal.log_prob(x.bfloat16()).dtype == torch.float32
    assert normal.entropy().dtype == torch.float32
