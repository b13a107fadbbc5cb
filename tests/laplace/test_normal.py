"""`LaplaceNormal` as a `torch.distributions.Distribution`, against `MultivariateNormal`."""

import pytest
import torch
from dense_twin import assert_near, draw
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, MultivariateNormal

from remix.laplace import LaplaceCovariance, LaplaceNormal


def make(dim: int = 6, batch: tuple[int, ...] = (), validate_args: bool | None = None) -> LaplaceNormal:
    _, loc, *parameters = (v.double() for v in draw((), dim, batch))
    return LaplaceNormal(loc, LaplaceCovariance(*parameters), validate_args=validate_args)


def dense(normal: LaplaceNormal) -> MultivariateNormal:
    return MultivariateNormal(normal.loc, normal.covariance_matrix)


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
def test_moments_density_and_entropy(batch: tuple[int, ...]) -> None:
    normal = make(batch=batch)
    twin = dense(normal)
    assert (normal.batch_shape, normal.event_shape) == (twin.batch_shape, twin.event_shape)
    for name in ("mean", "mode", "variance", "stddev", "covariance_matrix", "precision_matrix"):
        assert_near(getattr(normal, name), getattr(twin, name))
    assert_near(normal.entropy(), twin.entropy())
    assert_near(normal.perplexity(), twin.perplexity())
    for lead in ((), (4, *batch), (5, *batch[:-1], 3 if batch else 2)):
        x = torch.randn(*lead, 6, dtype=torch.float64)
        assert_near(normal.log_prob(x), twin.log_prob(x))


def test_contract() -> None:
    normal = make(batch=(2,))
    assert isinstance(normal, Distribution)
    assert normal.has_rsample
    assert set(normal.arg_constraints) == {"loc", "diag", "weight", "coord"}
    for name, constraint in normal.arg_constraints.items():
        assert constraint.event_dim == 1
        assert constraint.check(getattr(normal, name)).all()
    assert not normal.arg_constraints["diag"].check(-normal.diag).any()
    x = normal.sample((3,))
    assert x.shape == normal._extended_shape((3,)) == (3, 2, 6)
    assert normal.support.check(x).all()
    assert "LaplaceNormal(dim=6" in repr(normal)


def test_loc_and_covariance_broadcast() -> None:
    _, loc, *parameters = (v.double() for v in draw((), 6))
    sigma = LaplaceCovariance(*parameters)
    many_means = LaplaceNormal(torch.stack([loc, -loc, 0 * loc]), sigma)
    assert many_means.batch_shape == (3,)
    x = torch.randn(5, 1, 6, dtype=torch.float64)
    assert_near(many_means.log_prob(x), dense(many_means).log_prob(x))
    many_covariances = LaplaceNormal(loc, LaplaceCovariance(*(torch.stack([v, v]) for v in parameters)))
    assert many_covariances.mean.shape == (2, 6)
    assert_near(many_covariances.log_prob(x), dense(many_covariances).log_prob(x))


def test_expand() -> None:
    normal = make(batch=(3,))
    wide = normal.expand((2, 3))
    assert isinstance(wide, LaplaceNormal)
    assert (wide.batch_shape, wide.event_shape) == ((2, 3), (6,))
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    assert_near(wide.log_prob(x), normal.log_prob(x))
    assert_near(wide.variance, normal.variance.expand(2, 3, 6))
    assert wide.loc.data_ptr() == normal.loc.data_ptr()
    assert wide.sample((4,)).shape == (4, 2, 3, 6)


def test_inside_other_distributions() -> None:
    normal = make(batch=(3,))
    x = torch.randn(5, 6, dtype=torch.float64)
    mixture, twin = (MixtureSameFamily(Categorical(torch.ones(3)), d) for d in (normal, dense(normal)))
    assert_near(mixture.log_prob(x), twin.log_prob(x))
    assert_near(mixture.variance, twin.variance)
    rows = x[:3]
    assert_near(Independent(normal, 1).log_prob(rows), Independent(dense(normal), 1).log_prob(rows))


def test_dense_matrices_are_refused_when_large() -> None:
    zeros = torch.zeros(5000)
    normal = LaplaceNormal(zeros, LaplaceCovariance(zeros + 1, zeros, zeros))
    for name in ("covariance_matrix", "precision_matrix"):
        with pytest.raises(ValueError, match=r"5000 coordinates.*limit of 4096"):
            getattr(normal, name)
    with pytest.raises(ValueError, match="limit of 4 coordinates"):
        make().covariance.to_dense(limit=4)
    assert make().covariance.to_dense(limit=6).shape == (6, 6)


# --- draws ---


def test_covariance_of_many_draws() -> None:
    normal = make()
    count = 200_000
    draws = normal.sample((count,), generator=torch.Generator().manual_seed(0))
    # Standard errors of an entry: of the mean sqrt(v / n), of the covariance sqrt((v_i v_j + c_ij^2) / n).
    sigma, variance = normal.covariance_matrix, normal.variance
    assert ((draws.mean(0) - normal.mean).abs() < 5 * (variance / count).sqrt()).all()
    deviation = ((variance[:, None] * variance + sigma**2) / count).sqrt()
    assert ((draws.T.cov() - sigma).abs() < 5 * deviation).all()


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


def test_generator_makes_draws_repeatable() -> None:
    normal = make()
    first, again, other = (normal.sample((3,), generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
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


# --- validation ---


def test_validation_can_be_switched_off_and_on() -> None:
    bad = torch.full((6,), torch.nan, dtype=torch.float64)
    loc, parameters = make().loc, make().covariance.tensors()
    with pytest.raises(ValueError, match="value"):
        make().log_prob(bad)
    with pytest.raises(ValueError, match="value"):
        make().expand((2,)).log_prob(bad)
    assert make(validate_args=False).log_prob(bad).isnan()
    assert make(validate_args=False).expand((2,)).log_prob(bad).isnan().all()
    assert LaplaceNormal(bad, LaplaceCovariance(**parameters), validate_args=False).mean.isnan().all()
    Distribution.set_default_validate_args(False)
    try:
        assert LaplaceNormal(loc, LaplaceCovariance(**parameters)).log_prob(bad).isnan()
        LaplaceCovariance(-parameters["diag"], parameters["weight"], parameters["coord"])
        with pytest.raises(ValueError, match="value"):
            make(validate_args=True).log_prob(bad)
    finally:
        Distribution.set_default_validate_args(True)
