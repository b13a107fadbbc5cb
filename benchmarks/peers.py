"""The same mathematics in other libraries, each given its best case."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from remix.laplace import LaplaceCovariance


class Celerite:
    """celerite2 in float64, the factorisation made beforehand, the rows already sorted, centred and transposed."""

    def __init__(self, covariance: LaplaceCovariance, rows: Tensor):
        from celerite2 import driver

        order = torch.argsort(covariance.coord.double(), stable=True)
        d, w, a = (v.double()[order].numpy() for v in covariance.parameters)
        self.driver = driver
        self.t, self.c, self.U = a, np.ones(1), np.ascontiguousarray(w[:, None])
        variance = d + w**2
        self.d, self.W = driver.factor(self.t, self.c, variance, self.U, self.U, variance.copy(), self.U.copy())
        self.y = np.ascontiguousarray(rows[:, order].double().numpy().T)
        self.z, self.g = np.empty_like(self.y), np.empty_like(self.y)

    def value(self) -> float:
        self.driver.solve_lower(self.t, self.c, self.U, self.W, self.y, self.z)
        return float(np.einsum("kb,kb,k->", self.z, self.z, 1 / self.d))

    def value_and_gradient(self) -> float:
        self.driver.solve_lower(self.t, self.c, self.U, self.W, self.y, self.z)
        np.divide(self.z, self.d[:, None], out=self.g)
        value = float(np.einsum("kb,kb->", self.z, self.g))
        self.driver.solve_upper(self.t, self.c, self.U, self.W, self.g, self.g)
        return value


class PyroHmm:
    """pyro's GaussianHMM with one hidden dimension: the same density as a parallel scan with autograd."""

    def __init__(self, covariance: LaplaceCovariance, rows: Tensor):
        import pyro.distributions as dist
        from torch.distributions import Independent, Normal

        order = torch.argsort(covariance.coord, stable=True)
        d, w, a = (v[order] for v in covariance.parameters)
        phi = torch.cat([torch.zeros(1, dtype=a.dtype), torch.exp(-a.diff())])
        noise = (1 - phi.square()).clamp_min(1e-12).sqrt()
        zero = torch.zeros_like(d)[:, None]
        self.hmm = dist.GaussianHMM(
            Independent(Normal(zero[0], torch.ones_like(zero[0])), 1),
            phi[:, None, None],
            Independent(Normal(zero, noise[:, None]), 1),
            w[:, None, None],
            Independent(Normal(zero, d.sqrt()[:, None]), 1),
        )
        self.x = rows[:, order].clone().requires_grad_()

    def value_and_gradient(self) -> float:
        self.x.grad = None
        value = -self.hmm.log_prob(self.x.unsqueeze(-1)).sum()
        value.backward()
        return float(value.detach())


class Dense:
    """torch's MultivariateNormal with a dense Cholesky factor."""

    def __init__(self, covariance: LaplaceCovariance, rows: Tensor):
        dense = covariance.to_dense(limit=covariance.dim)
        factor = torch.linalg.cholesky(dense.double()).to(rows.dtype)
        zero = torch.zeros(covariance.dim, dtype=rows.dtype)
        self.normal = torch.distributions.MultivariateNormal(zero, scale_tril=factor, validate_args=False)
        self.x = rows.clone().requires_grad_()

    def value_and_gradient(self) -> float:
        self.x.grad = None
        value = -self.normal.log_prob(self.x).sum()
        value.backward()
        return float(value.detach())
