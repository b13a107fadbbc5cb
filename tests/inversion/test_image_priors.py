import pytest
import torch

from remix.inversion import ImageNorm, Observed, Smoothness, TotalVariation
from remix.inversion.image_priors import gaussian_kernel
from remix.inversion.measurements import Reading


def value(penalty, images):
    seen = Observed(slice(0, len(images)), images, images, images, {})
    return penalty.value([Reading(m, m(seen)) for m in penalty.measurements], len(images))


def test_kernel_has_the_published_numbers():
    kernel = gaussian_kernel()
    expected = {(2, 2): 0.092198, (0, 2): 0.033918, (0, 0): 0.012478, (1, 2): 0.071804}
    for place, number in expected.items():
        assert kernel[place].item() == pytest.approx(number, abs=5e-7)
    assert kernel.sum().item() == pytest.approx(1)
    assert torch.equal(kernel, kernel.mT)


def test_smoothness_against_sums_over_pixels(images):
    kernel = gaussian_kernel()
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="reflect")
    blurred = sum(kernel[i, j] * padded[..., i : i + 8, j : j + 8] for i in range(5) for j in range(5))
    torch.testing.assert_close(value(Smoothness(), images), (images - blurred).square().mean())
    assert value(Smoothness(), torch.ones_like(images)).item() == pytest.approx(0, abs=1e-20)


def test_variations_against_their_formulas(images):
    x = images
    dx, dy = x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]
    down, up = x[..., 1:, 1:] - x[..., :-1, :-1], x[..., 1:, :-1] - x[..., :-1, 1:]
    four = [dx, dy, down, up]
    expected = {
        "batch-norms": sum(d.norm() for d in four),
        "map-norms": sum(d.flatten(2).norm(dim=2).mean() for d in four),
        "absolute": dx.abs().mean() + dy.abs().mean(),
        "squared": (dx.square().sum() + dy.square().sum()) / len(x),
    }
    for kind, number in expected.items():
        torch.testing.assert_close(value(TotalVariation(kind), x), number)


@pytest.mark.parametrize("kind", ["batch-norms", "map-norms", "absolute", "squared"])
def test_a_constant_image_has_no_variation_and_a_finite_gradient(kind):
    images = torch.ones(2, 3, 4, 4, requires_grad=True)
    variation = value(TotalVariation(kind), images)
    variation.backward()
    assert variation.item() == 0
    assert torch.equal(images.grad, torch.zeros_like(images))


def test_norm_is_the_mean_square(images):
    torch.testing.assert_close(value(ImageNorm(), images), images.square().mean())


def test_unknown_variation_is_refused():
    with pytest.raises(ValueError, match="unknown total variation 'l3'; there are: batch-norms"):
        TotalVariation("l3")
