import pytest
import torch

from remix.inversion import Targets, balanced_labels, feature_targets, random_labels
from remix.statistics import ClassGaussians, class_gaussians, train_selectors


@pytest.fixture
def gaussians(generator) -> ClassGaussians:
    features = torch.randn(60, 6, generator=generator) + torch.arange(3).repeat(20)[:, None] * 5
    return class_gaussians(features, torch.tensor([2, 5, 7]).repeat(20))


def test_balanced_labels_differ_by_at_most_one():
    labels = balanced_labels([3, 5, 8], 10)
    assert labels.bincount(minlength=9)[[3, 5, 8]].tolist() == [4, 3, 3]


def test_random_labels_come_from_the_classes(generator):
    labels = random_labels([3, 5, 8], 3000, generator)
    counts = labels.bincount(minlength=9)
    assert counts[[3, 5, 8]].sum() == 3000
    assert counts[[3, 5, 8]].min() > 900


def test_features_of_a_class_have_its_mean_and_spread(gaussians, generator):
    labels = balanced_labels([2, 5, 7], 3000)
    features = feature_targets(labels, gaussians, None, generator).features
    for place, label in enumerate(gaussians.labels):
        rows = features[labels == label]
        torch.testing.assert_close(rows.mean(0), gaussians.mean[place], atol=0.15, rtol=0)
        torch.testing.assert_close(rows.std(0), gaussians.std[place], atol=0.15, rtol=0)


def test_selected_features_have_exactly_the_mean_and_spread_of_their_class(gaussians, generator):
    samples = {label: gaussians.sample([label] * 64, generator) for label in gaussians.labels}
    from remix.statistics import SelectorRecipe

    selectors = train_selectors(samples, SelectorRecipe(epochs=3), generator=generator)
    labels = random_labels([2, 5, 7], 120, generator)
    features = feature_targets(labels, gaussians, selectors, generator).features
    for place, label in enumerate(gaussians.labels):
        rows = features[labels == label]
        torch.testing.assert_close(rows.mean(0), gaussians.mean[place], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(rows.std(0), gaussians.std[place], atol=1e-4, rtol=1e-4)


def test_bad_targets_are_refused(gaussians, generator):
    with pytest.raises(ValueError, match="there is no class 4; known are 2, 5, 7"):
        feature_targets(torch.tensor([2, 4]), gaussians, None, generator)
    with pytest.raises(ValueError, match="must not be negative"):
        Targets(torch.tensor([-1]))
    with pytest.raises(ValueError, match="at least one int64"):
        Targets(torch.tensor([], dtype=torch.int64))
    with pytest.raises(ValueError, match=r"features must be \(2, D\)"):
        Targets(torch.tensor([0, 1]), torch.zeros(3, 4))
    with pytest.raises(ValueError, match="finite"):
        Targets(torch.tensor([0]), torch.tensor([[float("nan")]]))
    with pytest.raises(ValueError, match="at least one class"):
        balanced_labels([], 3)
