"""Features as real networks give them: few images, dead channels, half precision, odd strides."""

import math

import pytest
import torch

from remix.laplace import LaplaceCovariance, fit

LAYOUT = (6, 8, 8)


@pytest.fixture
def maps():
    """(60, 384): smooth maps after a ReLU; channel 2 is dead, one pixel of channel 4 is."""
    rng = torch.Generator().manual_seed(0)
    coarse = torch.randn(60, 6, 3, 3, generator=rng)
    x = torch.nn.functional.interpolate(coarse, (8, 8), mode="bilinear").relu_()
    x[:, 2] = 0
    x[:, 4, 0, 0] = 0
    return x.flatten(1)


@pytest.mark.slow
@pytest.mark.parametrize("transform", [None, "dct"])
@pytest.mark.parametrize("memory", [4 << 30, 384 * (1000 + 12 * 25)])
def test_dead_channels_and_pixels(maps, transform, memory):
    normal = fit(maps, layout=LAYOUT, transform=transform, memory=memory)
    assert torch.isfinite(normal.log_prob(maps)).all()
    assert (normal.diag > 0).all()
    assert normal.report.train_gain > 0
    weight = normal.weight.reshape(LAYOUT)
    assert (weight[2] == 0).all()
    # What was dead may come alive in another image: unlikely, but not impossible.
    assert torch.isfinite(normal.log_prob(maps + 0.1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("rows", range(2, 10))
def test_very_few_images(maps, rows):
    normal = fit(maps[:rows], layout=LAYOUT, transform=None)
    assert torch.isfinite(normal.log_prob(maps)).all()
    if rows < 8:  # nothing can be validated
        assert normal.report.scale == 0
        assert (normal.weight == 0).all()


def test_a_single_image_is_refused(maps):
    with pytest.raises(ValueError, match=r"at least 2 rows.*\(1, 384\)"):
        fit(maps[:1], layout=LAYOUT)


@pytest.mark.parametrize("memory", [4 << 30, 384 * (1000 + 12 * 20)])
def test_identical_images_are_refused(maps, memory):
    with pytest.raises(ValueError, match="2 distinct rows"):
        fit(maps[:1].expand(100, -1), layout=LAYOUT, memory=memory)


def test_some_identical_images_are_no_harm(maps):
    normal = fit(torch.cat([maps[:30], maps[:1].expand(10, -1)]), layout=LAYOUT)
    assert torch.isfinite(normal.log_prob(maps)).all()


def test_one_dimension_is_a_plain_normal(maps):
    x = maps[:, 70:71]
    normal = fit(x)
    assert normal.variance == pytest.approx(float(x.var(correction=0)), rel=0.1)
    reached = normal.log_prob(x).mean()
    assert reached > torch.distributions.Normal(x.mean(), 1.3 * x.std()).log_prob(x).mean()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("memory", [4 << 30, 384 * (1000 + 12 * 25)])
def test_half_precision_is_computed_in_single(maps, dtype, memory):
    half = maps.to(dtype)
    normal = fit(half, layout=LAYOUT, memory=memory)
    wanted = fit(half.float(), layout=LAYOUT, memory=memory)
    assert normal.loc.dtype == torch.float32
    assert torch.equal(normal.weight, wanted.weight)
    assert normal.log_prob(half).dtype == torch.float32


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("memory", [4 << 30, 384 * (1000 + 12 * 25)])
def test_the_first_feature_that_is_not_finite_is_named(maps, value, memory):
    maps[7, 33] = value
    with pytest.raises(ValueError, match="feature 33 contains NaN or infinite"):
        fit(maps, layout=LAYOUT, transform=None, memory=memory)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [4 << 30, 384 * (1000 + 12 * 25)])
def test_strides_do_not_matter(maps, memory):
    wanted = fit(maps, memory=memory)
    spread = torch.zeros(60, 768)
    spread[:, ::2] = maps
    backwards = maps.flip(0).contiguous()
    for x in (maps.T.contiguous().T, spread[:, ::2], torch.cat([maps, maps])[:60], backwards.flip(0)):
        assert torch.equal(fit(x, memory=memory).weight, wanted.weight)


@pytest.mark.parametrize("size", [4097, 200_704, 10**6])
def test_a_dense_matrix_beyond_memory_is_refused_with_its_size(size):
    covariance = LaplaceCovariance(torch.ones(size), torch.ones(size), torch.zeros(size))
    with pytest.raises(ValueError, match=r"\d+(\.\d+)? (MiB|GiB|TiB)") as error:
        covariance.to_dense()
    assert str(size) in str(error.value)


@pytest.mark.parametrize(
    ("scale", "message"),
    [(1e150, "numbers whose powers are"), (1e-160, "its square is 0"), (1e-300, "its square is 0")],
)
def test_scales_whose_powers_leave_float64_are_refused(scale, message):
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        fit(scale * x)


def test_what_varies_in_a_single_row_alone_is_refused():
    x = torch.zeros(50, 8)
    x[0] = 1.0
    with pytest.raises(ValueError, match="also without a fifth that is held out"):
        fit(x)
