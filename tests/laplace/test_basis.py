import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.laplace.basis import Dct2, cosine_matrix

LAYOUT = (3, 5, 4)


def test_cosine_matrix_is_orthonormal():
    matrix = cosine_matrix(7, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(7, dtype=torch.float64))


def test_round_trip_and_length_are_kept():
    basis = Dct2(LAYOUT)
    x = torch.randn(2, 6, basis.dim, dtype=torch.float64)
    y = basis.forward(x)
    torch.testing.assert_close(basis.inverse(y), x)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))


def test_constant_map_has_only_the_zero_frequency():
    basis = Dct2(LAYOUT)
    y = basis.forward(torch.ones(basis.dim, dtype=torch.float64)).reshape(LAYOUT)
    assert y[:, 0, 0].allclose(torch.full((3,), 20.0, dtype=torch.float64).sqrt())
    y[:, 0, 0] = 0
    assert y.abs().max() < 1e-12


def test_variance_is_the_diagonal_of_the_transformed_covariance():
    basis = Dct2(LAYOUT)
    rng = torch.Generator().manual_seed(1)
    diag, weight, coord = (torch.rand(2, basis.dim, generator=rng, dtype=torch.float64) for _ in range(3))
    covariance = LaplaceCovariance(0.1 + diag, weight - 0.5, 5 * coord)
    normal = LaplaceNormal(torch.zeros(2, basis.dim, dtype=torch.float64), covariance, basis)
    torch.testing.assert_close(normal.variance, normal.covariance_matrix.diagonal(dim1=-2, dim2=-1))


def test_same_layout_is_the_same_basis():
    assert Dct2(LAYOUT) == Dct2([3, 5, 4])  # type: ignore[arg-type]
    assert len({Dct2(LAYOUT), Dct2(LAYOUT), Dct2((3, 4, 5))}) == 2


@pytest.mark.parametrize("layout", [(3, 4), (0, 2, 2), (1.5, 2, 2)])
def test_a_bad_layout_is_refused(layout):
    with pytest.raises(ValueError, match="layout"):
        Dct2(layout)


def test_rows_of_another_size_are_refused():
    with pytest.raises(ValueError, match="60"):
        Dct2(LAYOUT).forward(torch.zeros(2, 59))


def test_a_use_in_inference_mode_or_of_fake_tensors_leaves_nothing_behind():
    basis, x = Dct2((2, 4, 3)), torch.randn(5, 24)
    with torch.inference_mode():
        basis.forward(x)
    with FakeTensorMode() as mode:
        basis.inverse(mode.from_tensor(x))
    with torch.device("meta"):
        y = x.clone().requires_grad_()
        basis.inverse(basis.forward(y)).sum().backward()
    torch.testing.assert_close(y.grad, torch.ones_like(x))
