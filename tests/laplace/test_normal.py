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


def test_it_keeps_the_contract_of_a_distribution() -> None:
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


def test_expanding_copies_nothing_and_changes_no_density() -> None:
    normal = make(batch=(3,))
    wide = normal.expand((2, 3))
    assert isinstance(wide, LaplaceNormal)
    assert (wide.batch_shape, wide.event_shape) == ((2, 3), (6,))
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    assert_near(wide.log_prob(x), normal.log_prob(x))
    assert_near(wide.variance, normal.variance.expand(2, 3, 6))
    assert wide.loc.data_ptr() == normal.loc.data_ptr()
    assert wide.sample((4,)).shape == (4, 2, 3, 6)


def test_other_distributions_may_hold_it() -> None:
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
