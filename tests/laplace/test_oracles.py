"""Programs by other people that can do parts of the same algebra."""

import numpy as np
import pytest
import torch
from dense_twin import assert_near, draw
from torch import Tensor

from remix.laplace import LaplaceCovariance


def sorted_case(dim: int = 300) -> tuple[Tensor, LaplaceCovariance, Tensor]:
    """Five rows, a covariance, and the order of its coordinates."""
    x, _, *parameters = (v.double() for v in draw((5,), dim))
    sigma = LaplaceCovariance(*parameters)
    return x, sigma, sigma.coord.argsort()


def test_celerite2_has_the_same_factor_logdet_and_solution() -> None:
    """A semiseparable solver: t = sorted coordinates, decay 1, U = V = weight, diagonal d + w^2."""
    driver = pytest.importorskip("celerite2.driver")
    x, sigma, order = sorted_case()
    d, w, t = (np.ascontiguousarray(v[order].numpy()) for v in (sigma.diag, sigma.weight, sigma.coord))
    rows = np.ascontiguousarray(x[:, order].numpy().T)
    decay, column = np.ones(1), w[:, None].copy()
    S, W = driver.factor(t, decay, d + w**2, column, column, np.empty_like(d), np.empty_like(column))
    assert_near(sigma.factor.S, torch.from_numpy(S))
    assert_near(sigma.logdet(), torch.tensor(np.log(S).sum()))

    lower = driver.solve_lower(t, decay, column, W, rows, np.empty_like(rows))
    whitened = torch.from_numpy(lower / np.sqrt(S)[:, None]).T
    assert_near(sigma.whiten(x)[:, order], whitened)

    below = driver.matmul_lower(t, decay, column, column, rows, np.zeros_like(rows))
    above = driver.matmul_upper(t, decay, column, column, rows, np.zeros_like(rows))
    product = torch.from_numpy(below + above + (d + w**2)[:, None] * rows).T
    assert_near(sigma.matvec(x)[:, order], product)

    upper = driver.solve_upper(t, decay, column, W, lower / S[:, None], np.empty_like(rows))
    assert_near(sigma.solve(x)[:, order], torch.from_numpy(upper).T)


def test_statsmodels_has_the_same_likelihood() -> None:
    """A state-space model: latent Ornstein-Uhlenbeck process seen at the coordinates, w h + noise of variance d."""
    statespace = pytest.importorskip("statsmodels.tsa.statespace.kalman_filter")
    x, sigma, order = sorted_case(60)
    d, w, a = (v[order].numpy() for v in (sigma.diag, sigma.weight, sigma.coord))
    gap = np.append(np.diff(a), np.inf)
    model = statespace.KalmanFilter(k_endog=1, k_states=1)
    model.bind(x[0, order].numpy().copy())
    model["design"] = w[None, None].copy()
    model["obs_cov"] = d[None, None].copy()
    model["transition"] = np.exp(-gap)[None, None]
    model["selection"] = np.ones((1, 1))
    model["state_cov"] = -np.expm1(-2 * gap)[None, None]
    model.initialize_known(np.zeros(1), np.ones((1, 1)))
    result = model.filter()
    factor = sigma.factor
    nll = sigma.nll(x[0], torch.zeros_like(x[0]))
    assert_near(nll, torch.tensor(-result.llf_obs.sum()))
    assert_near(factor.S, torch.tensor(result.forecasts_error_cov[0, 0]))
    assert_near(factor.P, torch.tensor(result.predicted_state_cov[0, 0, :-1]))
    innovations = sigma.whiten(x[0])[order] * factor.S.sqrt()
    assert_near(innovations, torch.tensor(result.forecasts_error[0]))


def test_torch_has_the_same_likelihood() -> None:
    x, sigma, _ = sorted_case(40)
    dense = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), sigma.to_dense())
    assert_near(-sigma.nll(x, dense.loc), dense.log_prob(x))
