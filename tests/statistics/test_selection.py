from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from remix.statistics import (
    ClassGaussians,
    SelectorRecipe,
    class_gaussians,
    compensate,
    contrastive_loss,
    select_features,
    train_selectors,
)
from remix.statistics.selectors import crowding


@pytest.fixture
def trained(generator):
    features = torch.randn(200, 32, generator=generator).relu() + 0.2
    gaussians = class_gaussians(features, torch.zeros(200, dtype=torch.int64))
    return gaussians, train_selectors({0: features}, SelectorRecipe(epochs=40), generator)


def test_compensation_gives_mean_and_std_of_the_class():
    features = torch.tensor([[1.0, 2.0], [3.0, 2.5], [2.0, 4.0]])
    result = compensate(features, torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.5]))
    assert torch.allclose(result.mean(0), torch.tensor([0.0, 1.0]), atol=1e-6)
    assert torch.allclose(result.std(0), torch.tensor([2.0, 0.5]))
    # Scaling after shifting, as the reference does, would also scale the mean: 0.48038446 instead of 1.
    assert abs(float(result.mean(0)[1]) - 0.48038446) > 0.5


def test_compensation_of_one_feature_and_of_equal_features():
    single = torch.tensor([[1.0, 2.0]])
    assert torch.equal(compensate(single, torch.zeros(2), torch.ones(2)), single)
    equal = torch.ones(4, 2)
    assert torch.equal(compensate(equal, torch.tensor([3.0, 4.0]), torch.ones(2)), torch.tensor([[3.0, 4.0]] * 4))


def test_crowding_is_log_mean_exp_of_the_cosine(generator):
    candidates = normalize(torch.randn(3, 5, generator=generator), dim=1)
    chosen = normalize(torch.randn(4, 5, generator=generator), dim=1)
    for i, score in enumerate(crowding(candidates, chosen)):
        cosines = [float(candidates[i] @ other) for other in chosen]
        assert score == pytest.approx(math.log(sum(map(math.exp, cosines)) / 4), abs=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_as_many_as_asked_with_the_moments_of_the_class(trained, generator, count):
    gaussians, selectors = trained
    chosen = select_features(gaussians, selectors, 0, count, generator)
    assert chosen.shape == (count, 32)
    if count > 1:
        assert torch.allclose(chosen.mean(0), gaussians.mean[0], atol=1e-4)
        assert torch.allclose(chosen.std(0), gaussians.std[0], rtol=1e-3)


def test_chosen_features_are_more_diverse_than_plain_draws(trained, generator):
    gaussians, selectors = trained
    losses = []
    for _ in range(5):
        chosen = select_features(gaussians, selectors, 0, 120, generator)
        drawn = compensate(gaussians.sample([0] * 120, generator), gaussians.mean[0], gaussians.std[0])
        losses.append([float(contrastive_loss(selectors.embed(0, rows))) for rows in (chosen, drawn)])
    chosen_loss, drawn_loss = torch.tensor(losses).mean(0)
    assert chosen_loss < 0.9 * drawn_loss


def test_the_same_generator_gives_the_same_choice(trained):
    first, second = (select_features(*trained, 0, 30, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)


def test_a_class_of_one_sample_can_be_asked_for_many(generator):
    gaussians = ClassGaussians((0,), (1,), torch.ones(1, 8), torch.zeros(1, 8))
    selectors = train_selectors({0: torch.ones(1, 8)}, SelectorRecipe(epochs=1))
    assert torch.allclose(select_features(gaussians, selectors, 0, 10, generator), torch.ones(10, 8))


def test_bad_requests_are_told(trained):
    with pytest.raises(ValueError, match="count must be at least 1"):
        select_features(*trained, 0, 0)
    with pytest.raises(ValueError, match="no class 3"):
        select_features(*trained, 3, 5)
