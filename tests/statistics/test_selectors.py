"""Contrastive selectors, and what is chosen with them."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from remix.statistics import (
    ClassGaussians,
    SelectorRecipe,
    Selectors,
    class_gaussians,
    compensate,
    contrastive_loss,
    select_features,
    select_from_pool,
    train_selectors,
)
from remix.statistics import selector_training as training
from remix.statistics.selectors import crowding

SHORT = SelectorRecipe(epochs=10, batch=16)


def features(sizes: dict[int, int], dim: int = 8) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {label: torch.randn(size, dim, generator=generator).relu() + 0.5 for label, size in sizes.items()}


def as_module(selectors: Selectors, label: int) -> nn.Sequential:
    """The same selector in torch's own layers, in eval mode."""
    k, dim = selectors.labels.index(label), selectors.dim
    layers: list[nn.Module] = []
    for i in range(2):
        linear, norm = nn.Linear(dim, dim), nn.BatchNorm1d(dim)
        linear.weight.data = selectors.weight[k, i * dim : (i + 1) * dim].mT.contiguous()
        linear.bias.data = selectors.bias[k, i]
        norm.weight.data, norm.bias.data = selectors.scale[k, i], selectors.shift[k, i]
        norm.running_mean, norm.running_var = selectors.mean[k, i], selectors.variance[k, i]
        layers += [linear, norm, nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers).eval()


def test_loss_of_equal_and_of_orthogonal_embeddings():
    equal = normalize(torch.ones(64, 70), dim=-1)
    assert contrastive_loss(equal) == pytest.approx(1.0, abs=1e-5)
    orthogonal = torch.eye(64, 70)
    assert contrastive_loss(orthogonal) == pytest.approx(math.log((math.e + 63) / 64), abs=1e-6)
    assert contrastive_loss(orthogonal) == pytest.approx(0.026494, abs=1e-6)


def test_a_selector_is_the_network_it_claims_to_be():
    rows = features({3: 40, 5: 40})
    selectors = train_selectors(rows, SHORT, torch.Generator().manual_seed(0))
    for label in (3, 5):
        expected = normalize(as_module(selectors, label)(rows[label]), dim=-1)
        assert torch.allclose(selectors.embed(label, rows[label]), expected, atol=1e-4)


def test_a_selector_for_64_features_has_8576_parameters():
    selectors = train_selectors(features({0: 8}, dim=64), SelectorRecipe(epochs=1))
    assert sum(getattr(selectors, name)[0].numel() for name in ("weight", "bias", "scale", "shift")) == 8576


def test_the_written_out_gradient_is_that_of_autograd():
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    rows = torch.randn(2, 12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    network = training._Networks(6, generators, rows)
    for layer in network.layers:  # away from the symmetric start
        layer.scale += 0.3 * torch.randn(2, 1, 6, dtype=torch.float64, generator=generators[0])
        layer.shift += 0.3 * torch.randn(2, 1, 6, dtype=torch.float64, generator=generators[0])
    losses = network.loss_and_gradient(rows)
    for k in range(2):
        modules = nn.Sequential(
            *(m for _ in range(2) for m in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.LeakyReLU(0.01)))
        )
        modules = modules.double().train()
        for i, layer in enumerate(network.layers):
            modules[3 * i].weight.data = layer.weight[k].mT.clone()
            modules[3 * i].bias.data = layer.bias[k, 0].clone()
            modules[3 * i + 1].weight.data = layer.scale[k, 0].clone()
            modules[3 * i + 1].bias.data = layer.shift[k, 0].clone()
        z = modules(rows[k])
        loss = contrastive_loss(z / (z.norm(dim=-1, keepdim=True) + 1e-6))
        loss.backward()
        assert losses[k] == pytest.approx(float(loss.detach()), abs=1e-12)
        for i, layer in enumerate(network.layers):
            assert torch.allclose(layer.weight.grad[k], modules[3 * i].weight.grad.mT, atol=1e-10)
            assert torch.allclose(modules[3 * i].bias.grad, torch.zeros(6, dtype=torch.float64), atol=1e-10)
            assert torch.allclose(layer.scale.grad[k, 0], modules[3 * i + 1].weight.grad, atol=1e-10)
            assert torch.allclose(layer.shift.grad[k, 0], modules[3 * i + 1].bias.grad, atol=1e-10)
            assert torch.allclose(layer.mean[k, 0], modules[3 * i + 1].running_mean, atol=1e-10)
            assert torch.allclose(layer.variance[k, 0], modules[3 * i + 1].running_var, atol=1e-10)


def test_training_spreads_the_features():
    rows = features({0: 64}, dim=16)
    untrained = train_selectors(rows, SelectorRecipe(epochs=1, batch=64), torch.Generator().manual_seed(0))
    trained = train_selectors(rows, SelectorRecipe(epochs=60, batch=64), torch.Generator().manual_seed(0))
    before, after = (float(contrastive_loss(s.embed(0, rows[0]))) for s in (untrained, trained))
    assert after < 0.6 * before


def test_the_state_that_is_kept_had_the_lowest_loss(monkeypatch):
    states: list[tuple[float, torch.Tensor]] = []

    class Recording(training._Networks):
        def loss_and_gradient(self, rows: torch.Tensor) -> torch.Tensor:
            before = self.layers[0].weight.clone()
            losses = super().loss_and_gradient(rows)
            states.append((float(losses[0]), before[0]))
            return losses

    monkeypatch.setattr(training, "_Networks", Recording)
    selectors = train_selectors(features({0: 50}), SHORT, torch.Generator().manual_seed(0))
    assert len(states) == 10 * (50 // 16)
    best = min(states, key=lambda state: state[0])
    assert torch.equal(selectors.weight[0, :8], best[1])
    assert best[0] < states[0][0]


def test_a_class_does_not_depend_on_its_company(monkeypatch):
    rows = features({0: 40, 1: 33, 2: 90, 3: 5})
    together = train_selectors(rows, SHORT, torch.Generator().manual_seed(0))
    monkeypatch.setattr(training, "_SIDE_BY_SIDE", 1)
    apart = train_selectors(rows, SHORT, torch.Generator().manual_seed(0))
    assert together.labels == apart.labels == (0, 1, 2, 3)
    for name, tensor in together.tensors().items():
        assert torch.allclose(tensor, apart.tensors()[name], atol=2e-2), name


def test_minibatches_drop_the_remainder_and_shuffle_every_epoch():
    order = training._minibatches(10, torch.Generator().manual_seed(0), 4, 6)
    assert order.shape == (6, 4)
    for epoch in range(3):
        taken = order[2 * epoch : 2 * epoch + 2].flatten()
        assert len(taken.unique()) == 8
        assert taken.max() < 10
    assert not torch.equal(order[0], order[2])


def test_a_class_with_one_sample_is_no_trouble():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selectors = train_selectors(features({0: 1, 1: 20}), SHORT)
        assert torch.isfinite(selectors.embed(0, torch.randn(5, 8))).all()


def test_training_leaves_no_gradients_and_works_without_autograd():
    with torch.no_grad():
        selectors = train_selectors(features({0: 20}), SHORT)
    assert not any(tensor.requires_grad for tensor in selectors.tensors().values())


def test_replacing_takes_the_newer_of_two_and_adds_the_rest():
    old = train_selectors(features({0: 20, 2: 20}), SHORT)
    new = train_selectors(features({1: 20, 2: 20}), SHORT)
    both = old.replace(new)
    assert both.labels == (0, 1, 2)
    assert torch.equal(both.weight[2], new.weight[1])
    assert torch.equal(both.bias[0], old.bias[0])


def test_bad_input_is_told():
    selectors = train_selectors(features({4: 20}), SHORT)
    with pytest.raises(ValueError, match="no selector for class 0"):
        selectors.embed(0, torch.randn(2, 8))
    with pytest.raises(ValueError, match="empty"):
        train_selectors({})
    with pytest.raises(ValueError, match=r"class 1 must be floating point \(n, 8\)"):
        train_selectors({0: torch.randn(4, 8), 1: torch.randn(4, 7)})
    with pytest.raises(ValueError, match="class 0 must be finite"):
        train_selectors({0: torch.full((4, 8), torch.inf)})
    with pytest.raises(ValueError, match="epochs >= 1"):
        SelectorRecipe(epochs=0)
    with pytest.raises(ValueError, match=r"bias of the selectors must be a floating-point tensor of shape \(1, 2, 8\)"):
        Selectors(**{"labels": (0,), **selectors.tensors(), "bias": torch.zeros(1, 3, 8)})


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


def test_from_a_pool_each_is_the_least_crowded_of_what_is_left(trained):
    gaussians, selectors = trained
    for score in ("log-mean-exp", "mean"):
        chosen = select_from_pool(gaussians, selectors, 0, 12, torch.Generator().manual_seed(5), score)
        pool = gaussians.sample([0] * 24, torch.Generator().manual_seed(5))
        embedded, kept = selectors.embed(0, pool), [0]
        while len(kept) < 12:
            rest = [i for i in range(24) if i not in kept]
            scores = crowding(embedded[rest], embedded[kept], score)
            kept.append(rest[int(scores.argmin())])
        assert torch.equal(chosen, pool[kept])


def test_a_choice_from_a_pool_is_left_as_it_was_drawn(trained):
    gaussians, selectors = trained
    chosen = select_from_pool(gaussians, selectors, 0, 40, torch.Generator().manual_seed(1))
    pool = gaussians.sample([0] * 80, torch.Generator().manual_seed(1))
    assert all(any(torch.equal(row, other) for other in pool) for row in chosen)
    assert not torch.allclose(chosen.mean(0), gaussians.mean[0], atol=1e-6)


def test_crowding_by_the_mean_of_the_cosines(generator):
    candidates, chosen = (torch.nn.functional.normalize(torch.randn(n, 4, generator=generator)) for n in (3, 5))
    naive = torch.stack([torch.stack([(a * b).sum() for b in chosen]).mean() for a in candidates])
    assert torch.allclose(crowding(candidates, chosen, "mean"), naive, atol=1e-6)
