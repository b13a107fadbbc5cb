"""Scores of familiarity against distances written down, with every image taken out by hand."""

from __future__ import annotations

import pytest
import torch

from remix.statistics import ClassSums, Familiarity, Memory, class_gaussians
from remix.statistics.familiarity import _BETWEEN, _FLOOR, _SHRINKAGE

KINDS = ("dense", "diagonal", "none")


def example(images: int = 40, dim: int = 6, classes: int = 3, apart: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(images) % classes
    mixing = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    centres = apart * torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return torch.randn(images, dim, generator=generator, dtype=torch.float64) @ mixing + centres[labels] + 5, labels


def moments(x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Means, scatter about them, and scatter of the means about that of all."""
    means = torch.stack([x[labels == label].mean(0) for label in range(int(labels.max()) + 1)])
    apart, between = x - means[labels], means[labels] - x.mean(0)
    return means, apart.T @ apart, between.T @ between


def slow(x: torch.Tensor, labels: torch.Tensor, kind: str, asked: torch.Tensor, without: int | None = None) -> float:
    """The score of one image, all matrices inverted; of statistics without an image, as far as that is taken out."""
    images = len(x)
    means, scatter, between = moments(x, labels)
    freedom = images - len(means)
    squares = scatter.diagonal() if kind != "none" else between.diagonal().mean().expand(x.shape[1]) / images
    variance = squares / freedom if kind != "none" else squares
    variance = variance + _FLOOR * variance.mean()
    if without is not None:
        rest = torch.arange(images) != without
        x, labels = x[rest], labels[rest]
        means, scatter, between = moments(x, labels)
    share = (1 - _SHRINKAGE) if kind == "dense" else 0.0
    of_class = share * scatter / freedom + (_SHRINKAGE if kind == "dense" else 1.0) * torch.diag(variance)
    of_any = of_class + _BETWEEN * between / images
    away, apart = asked - x.mean(0), asked - means
    own = (apart @ torch.linalg.inv(of_class) * apart).sum(1)
    return float(away @ torch.linalg.inv(of_any) @ away - own.min())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_difference_of_two_distances(kind):
    x, labels = example()
    found = Familiarity.of_sums(ClassSums.of(x, labels, kind))
    asked = torch.cat([x[:5], 2 * x[:5] + 1])
    expected = [slow(x, labels, kind, one) for one in asked]
    assert found(asked).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_left_out_are_those_of_statistics_without_the_image(kind):
    x, labels = example()
    found = Familiarity.of_sums(ClassSums.of(x, labels, kind)).left_out(x, labels)
    expected = [slow(x, labels, kind, one, without=place) for place, one in enumerate(x)]
    assert found.tolist() == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_gaussians_of_classes_give_the_scores_of_their_sums():
    x, labels = example()
    sums = ClassSums.of(x, labels, "dense")
    expected = Familiarity.of_sums(sums)(x)
    own = Familiarity.of_sums(ClassSums.of(x, labels, "dense", own=True))(x)
    assert torch.allclose(own, expected)
    memory = Memory()
    assert Familiarity.of(memory, 3) is None
    memory.gaussians = class_gaussians(x, labels, True)
    assert torch.allclose(Familiarity.of(memory, 3)(x), expected, rtol=1e-4, atol=1e-4)
    assert Familiarity.of(memory, 4) is None  # nothing is known of the fourth
    memory.gaussians = class_gaussians(x, labels, False)
    diagonal = Familiarity.of_sums(ClassSums.of(x, labels, "diagonal"))(x)
    assert torch.allclose(Familiarity.of(memory, 3)(x), diagonal, rtol=1e-4, atol=1e-4)
    memory.keep(sums)
    assert torch.equal(Familiarity.of(memory, 3)(x), expected)
    assert Familiarity.of(memory, 2) is None


def test_images_of_another_class_look_less_familiar():
    x, labels = example(90, 12, 9, 10.0)
    known = labels < 6
    found = Familiarity.of_sums(ClassSums.of(x[known], labels[known], "dense"))
    left_out = found.left_out(x[known], labels[known])
    assert float((found(x[~known])[:, None] < left_out).double().mean()) > 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_images_that_are_all_the_same_have_scores(kind):
    x, labels = torch.ones(8, 4, dtype=torch.float64), torch.arange(8) % 2
    found = Familiarity.of_sums(ClassSums.of(x, labels, kind))
    assert torch.isfinite(found(x)).all()
    assert torch.isfinite(found.left_out(x, labels)).all()


def test_a_scatter_that_is_none_is_refused():
    with pytest.raises(ValueError, match="negative eigenvalues"):
        Familiarity(
            torch.eye(2).double(), torch.tensor([3.0, 3.0]).double(), torch.tensor([[1.0, 9e3], [9e3, 1.0]]).double()
        )
