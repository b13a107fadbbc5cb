"""The exact small example of the method's specification, number by number, and the published starting point."""

import math

import pytest
import torch
from torch import Tensor

from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.laplace.reference import kernel


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


DIAG, WEIGHT, COORD = vector(0.5, 0.25, 0.8, 0.1), vector(0.7, -0.4, 1.1, 0.2), vector(0.3, -0.5, 1.2, 0.1)
MEAN = vector(0.1, -0.2, 0, 0.4)
X = torch.stack([vector(1, 0, -0.5, 0.2), vector(0, 0.3, 2, 0.4)])
SORTED = [1, 3, 0, 2]


@pytest.fixture
def normal(path: str) -> LaplaceNormal:
    return LaplaceNormal(MEAN, LaplaceCovariance(DIAG, WEIGHT, COORD))


def near(got: Tensor, *wanted: float, digits: float = 1e-10) -> bool:
    """To all the digits that are given."""
    return torch.allclose(got.reshape(-1), vector(*wanted), rtol=0, atol=digits)


def upper(matrix: Tensor) -> Tensor:
    """Entries (0,1), (0,2), (0,3), (1,2), (1,3), (2,3)."""
    row, column = torch.triu_indices(4, 4, 1)
    return matrix[row, column]


def test_the_kernel_of_the_example() -> None:
    wanted = 0.4493289641, 0.4065696597, 0.8187307531, 0.1826835241, 0.5488116361, 0.3328710837
    assert near(upper(kernel(COORD)), *wanted)


def test_the_covariance_of_the_example(normal: LaplaceNormal) -> None:
    sigma = normal.covariance_matrix
    assert near(sigma.diagonal(), 0.99, 0.41, 2.01, 0.14)
    assert near(normal.variance, 0.99, 0.41, 2.01, 0.14)
    wanted = -0.12581211, 0.313058638, 0.1146223054, -0.0803807506, -0.0439049309, 0.0732316384
    assert near(upper(sigma), *wanted)
    assert near(upper(normal.covariance.matvec(torch.eye(4, dtype=torch.float64))), *wanted)


def test_the_correlation_of_the_example(normal: LaplaceNormal) -> None:
    correlation = normal.covariance.rescale(torch.ones(4, dtype=torch.float64)).to_dense()
    assert near(correlation.diagonal(), 1, 1, 1, 1)
    wanted = -0.1974753627, 0.2219269607, 0.3078842864, -0.088544604, -0.1832556408, 0.1380500932
    assert near(upper(correlation), *wanted)


def test_the_likelihood_of_the_example(normal: LaplaceNormal) -> None:
    assert near(normal.covariance.logdet(), -2.383949382351927, digits=1e-14)
    r = X - MEAN
    assert near((r * normal.covariance.solve(r)).sum(1), 1.942646673, 2.8865941075)
    assert near(normal.covariance.whiten(r).square().sum(1), 1.942646673, 2.8865941075)
    log_prob = normal.log_prob(X)
    assert near(log_prob, -3.4551027781309, -3.9270764954032, digits=1e-13)
    assert near(log_prob.mean(), -3.6910896367671, digits=1e-13)
    assert near(-log_prob.mean() / 4, 0.9227724091917662, digits=1e-14)


def test_the_kalman_filter_of_the_example(normal: LaplaceNormal) -> None:
    factor = normal.covariance.factor
    assert factor.order.tolist() == SORTED
    assert factor.rank.tolist() == [2, 0, 3, 1]
    assert near(factor.S, 0.41, 0.1352984318, 0.8757735015, 1.8975600045)
    assert near(factor.G, -0.9756097561, 1.3044656668, 0.6129658946, 0.5258235945)
    assert near(factor.gam * factor.P, 0.6097560976, 0.6522328334, 0.4378327819, 0.3824171596)
    assert near(factor.P + factor.C, 1, 1, 1, 1, digits=1e-15)
    innovation = normal.covariance.whiten(X[0] - MEAN)[SORTED] * factor.S.sqrt()
    assert near(innovation, 0.2, -0.1785829605, 1.0948811520, -0.6756362533)


def test_the_inverse_kernel_is_tridiagonal_and_the_precision_is_not(normal: LaplaceNormal) -> None:
    """K^-1 is, in sorted order; Sigma^-1 is not."""
    inverse = torch.linalg.inv(kernel(COORD)[SORTED][:, SORTED])
    assert near(inverse.diagonal(), 1.4310127607, 3.4642575424, 3.2312784082, 1.1980336265)
    assert near(inverse.diagonal(1), -0.7853564545, -2.4834107844, -0.4870841239)
    assert float(torch.triu(inverse, 2).abs().max()) < 1e-14
    precision = normal.precision_matrix[SORTED][:, SORTED]
    assert near(precision[0, 2], 0.2470212335)
    assert near(precision[2, 0], 0.2470212335)


def test_the_frobenius_terms_of_the_example(normal: LaplaceNormal) -> None:
    v = X - MEAN
    model = normal.covariance.to_dense().square().sum()
    data = (v * normal.covariance.matvec(v)).sum()
    constant = (v @ v.T).square().sum() / 4
    assert near(model, 5.489348503249905, digits=1e-14)
    assert near(data, 8.87132196316075, digits=1e-13)
    assert near(model - data, -3.381973459910844, digits=1e-13)
    assert near(constant, 5.35185, digits=1e-14)
    assert near(model - data + constant, 1.9698765400891567, digits=1e-13)


@pytest.mark.parametrize(("size", "logdet"), [(4, -1.4089412688), (16, -5.6423565591), (64, -22.6555109241)])
def test_published_starting_point(size: int, logdet: float, path: str) -> None:
    diag = torch.full((size,), math.log(2) + 1e-6, dtype=torch.float64)  # softplus(0) + 1e-6
    weight = torch.full((size,), 0.1, dtype=torch.float64)
    start = LaplaceCovariance(diag, weight, torch.linspace(-1, 1, size, dtype=torch.float64))
    assert near(start.diagonal(), *[0.7031481806] * size)
    assert near(start.logdet(), logdet)
    correlation = start.rescale(torch.ones(size, dtype=torch.float64)).to_dense()
    assert near(correlation[0, -1], 0.0019247050)


@pytest.mark.parametrize(("dim", "mebibytes"), [(200_704, 3.0625), (100_352, 1.53125), (50_176, 0.765625)])
def test_a_gaussian_takes_four_vectors(dim: int, mebibytes: float) -> None:
    """Four vectors in float32: mean, diag, weight, coord."""
    zeros = torch.zeros(dim)
    normal = LaplaceNormal(zeros, LaplaceCovariance(zeros + 1, zeros, zeros))
    stored = [normal.loc, *normal.covariance.tensors().values()]
    assert sum(v.numel() * v.element_size() for v in stored) == mebibytes * 2**20
