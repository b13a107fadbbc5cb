import math

import numpy as np
import pytest
import torch

from remix.laplace import kernels, reference
from remix.laplace.fitting.likelihood import Chain, ChainData, maximise, minimise
from remix.laplace.fitting.order import chain_start


def _chain(size: int, seed: int = 3) -> Chain:
    rng = torch.Generator().manual_seed(seed)
    loading = 1.8 * torch.rand(size, generator=rng, dtype=torch.float64) - 0.9
    phi = 0.05 + 0.9 * torch.rand(size, generator=rng, dtype=torch.float64)
    phi[0] = 0
    return Chain(torch.randperm(size, generator=rng), loading, phi)


def _dense_nll(x, loading, phi):
    coord = torch.cat([torch.zeros(1, dtype=torch.float64), -phi[1:].log().cumsum(0)])
    sigma = reference.dense(1 - loading**2, loading, coord)
    log_prob = torch.distributions.MultivariateNormal(torch.zeros_like(loading), sigma).log_prob(x)
    return -log_prob - 0.5 * x.shape[1] * math.log(2 * math.pi)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
@pytest.mark.parametrize(("rows", "size"), [(50, 3), (21, 64), (5, 65), (37, 130), (130, 40)])
def test_value_and_gradients_match_dense_autograd(path, standard, dtype, tolerance, rows, size):
    x = torch.randn(rows, size, dtype=dtype)
    data, chain = standard(x), _chain(size)
    value, loading_bar, phi_bar = ChainData(data, chain.order).nll(chain.loading, chain.phi)
    loading, phi = chain.loading.clone().requires_grad_(), chain.phi.clone().requires_grad_()
    u = data.u[chain.order, :rows].T.double()
    wanted = _dense_nll(u, loading, phi).mean()
    wanted.backward()
    assert value == pytest.approx(wanted.item(), rel=tolerance)
    torch.testing.assert_close(loading_bar, loading.grad, rtol=tolerance, atol=tolerance * 10)
    torch.testing.assert_close(phi_bar[1:], phi.grad[1:], rtol=tolerance, atol=tolerance * 10)
    torch.testing.assert_close(
        ChainData(data, chain.order).row_nll(chain.loading, chain.phi),
        _dense_nll(u, chain.loading, chain.phi),
        rtol=tolerance, atol=tolerance,
    )  # fmt: skip


@pytest.mark.skipif(kernels.native() is None, reason="native library not built")
def test_any_number_of_threads_gives_the_same_bits(standard):
    data, chain = standard(torch.randn(150, 300)), _chain(300)
    runs = [ChainData(data, chain.order, threads).nll(chain.loading, chain.phi) for threads in (1, 2, 3)]
    for value, loading_bar, phi_bar in runs[1:]:
        assert value == runs[0][0]
        assert torch.equal(loading_bar, runs[0][1])
        assert torch.equal(phi_bar, runs[0][2])


def test_maximum_on_the_true_order_recovers_the_model(path, model, standard):
    truth = model(24)
    x = truth.rsample((4000,), generator=torch.Generator().manual_seed(1))
    data = standard(x)
    chain = chain_start(data, torch.argsort(truth.coord))
    before = ChainData(data, chain.order).nll(chain.loading, chain.phi)[0]
    after = maximise(ChainData(data, chain.order), chain, 60)
    true_nll = float(-truth.log_prob(x).mean()) - 0.5 * float((data.variance.log() + math.log(2 * math.pi)).sum())
    assert after <= before
    assert after <= true_nll + 0.01
    order = chain.order
    wanted = truth.weight[order] / truth.variance[order].sqrt()
    assert ((chain.loading.abs() - wanted.abs()).abs() < 0.1).double().mean() > 0.9


def test_quadratic_with_very_different_curvatures():
    curvature = np.logspace(0, 3, 20)
    wanted = np.linspace(-2, 2, 20)
    point, _ = minimise(
        lambda p: (0.5 * curvature @ (p - wanted) ** 2, curvature * (p - wanted)), np.zeros(20), 200, 1e-14
    )
    np.testing.assert_allclose(point, wanted, atol=1e-4)


def test_the_minimum_of_rosenbrock_is_found():
    def rosenbrock(p):
        a, b = p
        value = (1 - a) ** 2 + 100 * (b - a**2) ** 2
        return value, np.array([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)])

    point, _ = minimise(rosenbrock, np.array([-1.2, 1.0]), 200, 1e-15)
    np.testing.assert_allclose(point, [1, 1], atol=1e-3)


def test_never_worse_than_the_start():
    _, value = minimise(lambda p: (float(np.cos(p).sum()), -np.sin(p)), np.full(3, 0.5), 3)
    assert value < 3 * np.cos(0.5)
    at_rest, _ = minimise(lambda p: (1.0, np.zeros(2)), np.zeros(2), 10)
    assert not at_rest.any()
