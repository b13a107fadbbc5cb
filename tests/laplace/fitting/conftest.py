"""Small data for the fitting tests, and the two paths every function must agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels
from remix.laplace.fitting.rows import Rows
from remix.laplace.fitting.standardise import Standardised, standardise


@pytest.fixture(params=["native", "torch"])
def path(request) -> Iterator[str]:
    if request.param == "native" and kernels.native() is None:
        pytest.skip("the native library is not built")
    with kernels.use(request.param):
        yield request.param


@pytest.fixture
def model() -> Callable[..., LaplaceNormal]:
    """A Laplace normal in hidden order with clear correlations."""

    def make(size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> LaplaceNormal:
        rng = torch.Generator().manual_seed(seed)
        loading = (0.5 + 0.49 * torch.rand(size, generator=rng)) * torch.randint(0, 2, (size,), generator=rng).mul(
            2
        ).sub(1)
        gaps = 0.4 * torch.rand(size, generator=rng)
        coord = gaps.cumsum(0)[torch.randperm(size, generator=rng)]
        scale = torch.rand(size, generator=rng).mul(2).exp()
        covariance = LaplaceCovariance(*(v.to(dtype) for v in (scale**2 * (1 - loading**2), scale * loading, coord)))
        return LaplaceNormal(torch.randn(size, generator=rng).to(dtype), covariance)

    return make


@pytest.fixture
def standard() -> Callable[[Tensor], Standardised]:
    return lambda x: standardise(Rows(x), None, None, None)
