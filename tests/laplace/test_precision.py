import pytest
import torch

from remix.laplace import kernels, reference
from remix.laplace.plane import Axis
from remix.laplace.precision import PrecisionKernel, precision_kernel

PATHS = ["torch", *(["native"] if kernels.native() is not None else [])]


def vectors(size: int) -> list[torch.Tensor]:
    diag, weight, coord = torch.randn(3, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    weight[size // 2] = 0
    coord[size // 3] += 3000  # a gap across which nothing is seen
    return [v.requires_grad_() for v in (diag.abs() + 0.1, weight, 3 * coord)]


def to_dense(kernel: PrecisionKernel) -> torch.Tensor:
    rank = kernel.axis.rank
    position = kernel.axis.gap.cumsum(0)[rank]
    after = rank[:, None] > rank[None, :]
    distance = torch.where(after, position[:, None] - position[None, :], 0.0)
    below = -kernel.right[:, None] * kernel.left[None, :] * torch.exp(-distance) * after
    return torch.diag(kernel.diagonal) + below + below.mT


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [1, 2, 3, 40, 200])
def test_it_is_the_inverse_and_so_are_its_gradients(path, size):
    parameters = vectors(size)
    diag, weight, coord = parameters
    with kernels.use(path):
        kernel = precision_kernel(diag, weight, Axis.of(coord))
        inverse = to_dense(kernel)
        logdet = kernel.innovation.log().sum()
        wanted = torch.linalg.inv(reference.dense(*parameters))
        torch.testing.assert_close(inverse, wanted, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(logdet, torch.logdet(reference.dense(*parameters)), rtol=1e-12, atol=1e-12)
        probe = torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        probe = probe + probe.mT
        got = torch.autograd.grad((inverse * probe).sum() + logdet, parameters)
    right = torch.autograd.grad((wanted * probe).sum() - torch.logdet(wanted), parameters)
    for one, other in zip(got, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * float(other.abs().max() + 1))


@pytest.mark.skipif(len(PATHS) == 1, reason="the native library is not built")
def test_ties_with_a_tiny_diagonal_agree_between_the_paths():
    """1 - P gam f is near 0 here: both paths get it without subtracting."""
    size = 30
    diag = torch.full((size,), 1e-12, dtype=torch.float64)
    weight = torch.linspace(0.5, 2, size, dtype=torch.float64)
    coord = (torch.arange(size) // 5).double()
    results = []
    for path in PATHS:
        with kernels.use(path):
            kernel = precision_kernel(diag, weight, Axis.of(coord))
            results.append(torch.stack([kernel.diagonal, kernel.left, kernel.right]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=0)
