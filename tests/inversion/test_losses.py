import math

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from remix.inversion import (
    BatchAverage,
    ClassBalance,
    FeatureMatch,
    ImageNorm,
    LabelMatch,
    Seen,
    SelfConfidence,
    Smoothness,
    TotalVariation,
)
from remix.inversion.losses import class_balance, gaussian_kernel


def test_class_balance_has_the_published_values():
    assert class_balance(torch.tensor([0.5, 0.25, 0.25])).item() == pytest.approx(0.0536053696, abs=1e-7)
    assert class_balance(torch.full((5,), 0.2)).item() == pytest.approx(0, abs=1e-6)
    assert class_balance(torch.tensor([0.0, 1.0, 0.0])).item() == pytest.approx(1)
    assert class_balance(torch.tensor([1.0])).item() == 0


def test_target_terms_are_those_of_torch(evaluate, classifier, images, generator):
    labels = torch.arange(10) % 4
    targets = torch.randn(10, 12, generator=generator, dtype=torch.float64)
    value, features, _ = evaluate(FeatureMatch(targets), images)
    logits = classifier.head(features)
    torch.testing.assert_close(value, mse_loss(features, targets))
    torch.testing.assert_close(evaluate(LabelMatch(classifier.head, labels), images)[0], cross_entropy(logits, labels))
    torch.testing.assert_close(
        evaluate(SelfConfidence(classifier.head, 1000.0), images)[0],
        cross_entropy(logits / 1000, logits.argmax(1)),
    )
    mean = logits.softmax(1).mean(0)
    expected = 1 + (mean * mean.log()).sum() / math.log(4)
    torch.testing.assert_close(evaluate(ClassBalance(classifier.head), images)[0], expected)


def value(loss, images):
    seen = Seen(slice(0, len(images)), images, images, images)
    return loss.value([BatchAverage(average, average(seen)) for average in loss.averages], len(images))


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
        "absolute": dx.abs().mean() + dy.abs().mean(),
    }
    for kind, number in expected.items():
        torch.testing.assert_close(value(TotalVariation(kind), x), number)


@pytest.mark.parametrize("kind", ["batch-norms", "absolute"])
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
