import numpy as np
import pytest
import torch

from remix.laplace import kernels
from remix.laplace.basis import Dct2
from remix.laplace.fitting.rows import MEMORY, Rows, open_rows
from remix.laplace.fitting.standardise import (
    apply,
    diagonal_log_likelihood,
    from_covariance,
    pseudo_rows,
    shrunk_variance,
    standardise,
)


def test_every_source_gives_the_same_rows(tmp_path):
    x = torch.randn(20, 7)
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    sources = [x, x.T.contiguous().T, x.numpy(), mapped, [x[:5], x[5:]], iter([x[:19].numpy(), x[19:].numpy()])]
    wanted = standardise(Rows(x), None, None, None)
    for source in sources:
        got = standardise(open_rows(source, MEMORY), None, None, None)
        assert torch.equal(got.u, wanted.u)
        assert torch.equal(got.mean, wanted.mean)


def test_standardised_data_are_centred_with_nearly_unit_variance():
    x = 5 + 3 * torch.randn(1000, 4, dtype=torch.float64)
    data = standardise(Rows(x), None, None, None)
    u = data.u[:, :1000]
    assert u.mean(1).abs().max() < 1e-12
    torch.testing.assert_close(u.square().mean(1), torch.ones(4, dtype=torch.float64), rtol=0.01, atol=0)
    torch.testing.assert_close(data.mean, x.mean(0))
    assert not data.u[:, 1000:].any()


def test_rows_by_index_and_in_the_cosine_basis():
    layout = (2, 3, 4)
    x = torch.randn(30, 24, dtype=torch.float64)
    index = torch.tensor([3, 8, 20, 29])
    basis = Dct2(layout)
    train = standardise(Rows(x), None, layout, basis)
    held = apply(Rows(x), index, train.mean, train.variance, basis)
    wanted = (basis.forward(x[index]) - train.mean) / train.variance.sqrt()
    torch.testing.assert_close(held.u[:, :4].T, wanted)
    torch.testing.assert_close(basis.inverse(train.mean), x.mean(0))


def test_constant_features_are_found_and_get_a_variance():
    x = torch.randn(50, 6)
    x[:, 2], x[:, 4] = 1e4 / 3, 0
    data = standardise(Rows(x), None, None, None)
    constant = data.largest == 0
    assert constant.tolist() == [False, False, True, False, True, False]
    assert (data.variance > 0).all()
    assert not data.u[constant].any()


def test_a_feature_that_rests_on_one_row_supports_no_loading():
    x = torch.randn(500, 3)
    x[:, 1] = 0
    x[7, 1] = 100
    largest = standardise(Rows(x), None, None, None).largest
    assert largest[0] > 0.999
    assert largest[1] < 0.2


def test_shrinkage_of_variances():
    variance = torch.tensor([1.0, 3.0, 10.0, 30.0], dtype=torch.float64)
    nothing = torch.zeros(4, dtype=torch.bool)
    maps = shrunk_variance(variance, nothing, 8, (2, 1, 2), False)
    torch.testing.assert_close(maps, (8 * variance + 2 * variance.new_tensor([2, 2, 20, 20])) / 10)
    separable = shrunk_variance(variance, nothing, 8, (2, 1, 2), True)
    torch.testing.assert_close(separable, (8 * variance + 2 * variance.new_tensor([1, 3, 10, 30])) / 10)


def test_units_of_many_scales_are_hardly_shrunk_and_alike_ones_are():
    nothing = torch.zeros(400, dtype=torch.bool)
    rng = torch.Generator().manual_seed(0)
    many = torch.logspace(-6, 3, 400, dtype=torch.float64)
    assert (shrunk_variance(many, nothing, 20, None, False) / many).max() < 1.2
    alike = torch.randn(20, 400, generator=rng, dtype=torch.float64).square().mean(0)
    assert shrunk_variance(alike, nothing, 20, None, False).std() < 0.95 * alike.std()


def test_pseudo_rows_have_the_same_moments():
    data = standardise(Rows(torch.randn(200, 9, dtype=torch.float64)), None, None, None)
    few = pseudo_rows(data)
    assert few.rows == 9
    torch.testing.assert_close(few.u @ few.u.T / 9, data.u @ data.u.T / 200)
    singular = from_covariance(torch.ones(5, 5, dtype=torch.float64) * 4, None)
    torch.testing.assert_close(singular.u @ singular.u.T / 5, torch.ones(5, 5, dtype=torch.float64))


def test_diagonal_likelihood_is_that_of_independent_normals():
    x, held = torch.randn(40, 5, dtype=torch.float64), torch.arange(10)
    train = torch.arange(10, 40)
    data = standardise(Rows(x), train, None, None)
    normal = torch.distributions.Normal(data.mean, data.variance.sqrt())
    wanted = normal.log_prob(x[held]).mean()
    assert diagonal_log_likelihood(Rows(x), train, held, None) == pytest.approx(float(wanted))
    assert diagonal_log_likelihood(Rows(x), train, train, None) == pytest.approx(
        float(normal.log_prob(x[train]).mean())
    )


def test_the_torch_path_gives_the_same():
    x = torch.randn(5, 3)
    usual = standardise(Rows(x), None, None, None)
    with kernels.use("torch"):
        data = standardise(Rows(x), None, None, None)
    assert torch.equal(data.mean, usual.mean)
    assert torch.equal(data.variance, usual.variance)
