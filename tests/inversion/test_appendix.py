"""Parts of the paper's appendix against naive forms written from it."""

import math
from dataclasses import replace

import pytest
import torch

from remix.inversion import Knowledge, LayerwiseSettings, PriorSettings, Schedule, feature_targets, invert_layerwise
from remix.inversion.appendix import SquaredVariation, spread_of_outputs
from remix.inversion.losses import FeatureMatch
from remix.inversion.priors import CovariancePrior
from remix.inversion.terms import Seen

SHORT = LayerwiseSettings(block=Schedule(3, 0.3), refine=Schedule(4, 0.1), prior=PriorSettings("laplace"))


@pytest.fixture
def targets(gaussians):
    return feature_targets(torch.arange(12) % 4, gaussians, None, torch.Generator().manual_seed(4))


def terms_of(knowledge, targets, settings):
    """By phase, the names and values of the terms in its first step."""
    seen = {}
    invert_layerwise(
        knowledge,
        targets,
        torch.Generator().manual_seed(0),
        settings,
        progress=lambda progress: seen.setdefault(progress.phase, dict(progress.step.values)),
    )
    return seen


def prior_of(x):
    return float(SquaredVariation().averages[0](Seen(slice(None), x, x, x)))


def test_the_image_prior_stops_one_row_and_one_column_early():
    x = torch.tensor([((i * i) % 17) / 4 for i in range(60)], dtype=torch.float64).reshape(1, 3, 4, 5)
    early = sum(
        (x[0, c, h + 1, w] - x[0, c, h, w]) ** 2 + (x[0, c, h, w + 1] - x[0, c, h, w]) ** 2
        for c in range(3)
        for h in range(3)
        for w in range(4)
    )
    everywhere = (x[..., 1:, :] - x[..., :-1, :]).square().sum() + (x[..., 1:] - x[..., :-1]).square().sum()
    assert prior_of(x) == float(early) == 240.625
    assert float(everywhere) == 292.4375


def test_the_image_prior_is_a_mean_over_images(generator):
    x = torch.randn(3, 2, 4, 4, generator=generator, dtype=torch.float64)
    assert prior_of(x) == pytest.approx(sum(prior_of(one[None]) for one in x) / 3)


def test_the_image_prior_is_of_the_first_block_only(knowledge, targets):
    by_phase = terms_of(knowledge, targets, replace(SHORT, variation=0.5))
    assert [phase for phase, terms in by_phase.items() if "image" in terms] == ["convolutions.0"]


def test_weights_of_statistics_and_of_inputs_are_apart(knowledge, targets):
    without_statistics = terms_of(knowledge, targets, replace(SHORT, statistics=0.0))
    assert set(without_statistics["convolutions.3"]) == {"features", "input", "prior"}
    without_input = terms_of(knowledge, targets, replace(SHORT, input=0.0))
    assert set(without_input["convolutions.3"]) == {"features", "statistics", "prior"}
    without_match = terms_of(knowledge, targets, replace(SHORT, features=0.0, refine_features=1.0))
    assert "features" not in without_match["convolutions.3"]
    assert "features" in without_match["refine"]


def test_the_refinement_of_the_paper_has_labels_and_statistics_but_no_features(knowledge, targets):
    settings = replace(SHORT, refine_features=0.0, labels=1.0, prior=PriorSettings("laplace", weight=0.0))
    assert set(terms_of(knowledge, targets, settings)["refine"]) == {"statistics", "labels"}


def test_the_likelihood_is_summed_over_channels_and_layers(knowledge, generator):
    layers = [layer for layer in knowledge.layers.values() if "laplace" in layer.covariances]
    images = torch.randn(6, 1, 8, 8, generator=generator, dtype=torch.float64)
    activations = {}
    hooks = []
    for layer in layers:
        module = dict(knowledge.backbone.named_modules())[layer.point.module]

        def keep(_, inputs, layer=layer):
            activations[layer.key] = inputs[0]

        hooks.append(module.register_forward_pre_hook(keep))
    with torch.no_grad():
        knowledge.backbone.features(images)
    for hook in hooks:
        hook.remove()
    naive = 0.0
    for layer in layers:
        rows = layer.view.rows(activations[layer.key]).double()
        normal = layer.normal
        sigma, centred = normal.covariance_matrix.double(), rows - normal.loc.double()
        forms = (centred * torch.linalg.solve(sigma, centred.mT).mT).sum(1)
        naive += float(0.5 * (layer.dim * math.log(2 * math.pi) + torch.logdet(sigma) + forms).mean())
    settings = LayerwiseSettings(
        block=Schedule(1, 0.1), refine=Schedule(1, 1e-9), statistics_form="nll", prior=PriorSettings("laplace")
    )
    from remix.inversion.layerwise import _Plan
    from remix.inversion.total_loss import TotalLoss
    from remix.inversion.variables import TensorVariable

    (term,) = _Plan(knowledge, settings)._statistics(1.0, None, None)
    total = TotalLoss([term], knowledge.backbone, knowledge.pooled, TensorVariable(images), None)
    values, _ = total.evaluate(generator, lambda _: {"statistics": 1.0}, 0)
    assert values["statistics"] == pytest.approx(naive, rel=1e-6)
    mean = CovariancePrior(layers, "laplace", "nll")
    total = TotalLoss([replace(term, loss=mean)], knowledge.backbone, knowledge.pooled, TensorVariable(images), None)
    averaged, _ = total.evaluate(generator, lambda _: {"statistics": 1.0}, 0)
    assert averaged["statistics"] < values["statistics"] / len(layers)


def test_the_likelihood_needs_covariances():
    with pytest.raises(ValueError, match=r"prior\.kind is none: set prior\.kind"):
        LayerwiseSettings(statistics_form="nll", prior=PriorSettings("none"))


def test_the_topmost_features_are_moved_by_the_labels_and_become_the_target_below(knowledge, targets):
    found = {}

    def look(progress):
        found[progress.phase] = progress.glance().tensors

    settings = replace(SHORT, top="labels", block=Schedule(20, 0.05))
    invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings, progress=look)
    assert list(found)[:2] == ["labels", "convolutions.4"]
    moved = found["labels"]["best.0"]
    assert moved.shape == targets.features.shape
    before, after = (
        torch.nn.functional.cross_entropy(knowledge.classify(x), targets.labels) for x in (targets.features, moved)
    )
    assert after < before
    assert torch.equal(found["convolutions.4"]["previous"], moved)


def test_the_targets_are_not_changed_by_the_labels(knowledge, targets):
    kept = targets.features.clone()
    invert_layerwise(knowledge, targets, torch.Generator(), replace(SHORT, top="labels"))
    assert torch.equal(targets.features, kept)


def test_labels_at_the_top_need_a_classifier(knowledge, targets):
    blind = Knowledge(knowledge.backbone, knowledge.layers)
    with pytest.raises(ValueError, match="classify"):
        invert_layerwise(blind, targets, torch.Generator(), replace(SHORT, top="labels"))


def test_normalised_outputs_are_compared_in_units_of_real_spread(knowledge, generator):
    layer = knowledge.block_inputs["convolutions.2"]
    target = torch.randn(2, layer.dim, 3, 3, generator=generator, dtype=torch.float64)
    output = torch.randn(2, layer.dim, 3, 3, generator=generator, dtype=torch.float64)
    seen = Seen(slice(None), output, output, output)
    found = FeatureMatch(target, spread_of_outputs(layer, target)).averages[0](seen)
    naive = (
        sum(
            ((output[i, c] - target[i, c]) / layer.variance[c].sqrt()).square().sum()
            for i in range(2)
            for c in range(layer.dim)
        )
        / target.numel()
    )
    assert torch.allclose(found, naive)
    pooled = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    assert torch.allclose(spread_of_outputs(None, pooled), pooled.std(0, correction=0))
