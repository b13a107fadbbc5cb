import math
from copy import deepcopy

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from remix.inversion import (
    Boost,
    ClassBalance,
    FeatureMatch,
    Knowledge,
    LabelMatch,
    MomentDistance,
    SelfConfidence,
    StatisticsKl,
    Term,
)
from remix.inversion.measurements import Reading
from remix.inversion.target_penalties import class_balance


def evaluate(penalty, section, images):
    watched = section.watching({point for m in penalty.measurements for point in m.points})
    with watched.observe(images, images, slice(0, len(images))) as seen:
        readings = [Reading(m, m(seen)) for m in penalty.measurements]
        return penalty.value(readings, len(images)), seen.output, dict(seen.activations)


def test_class_balance_has_the_published_values():
    assert class_balance(torch.tensor([0.5, 0.25, 0.25])).item() == pytest.approx(0.0536053696, abs=1e-7)
    assert class_balance(torch.full((5,), 0.2)).item() == pytest.approx(0, abs=1e-6)
    assert class_balance(torch.tensor([0.0, 1.0, 0.0])).item() == pytest.approx(1)
    assert class_balance(torch.tensor([1.0])).item() == 0


def test_target_terms_are_those_of_torch(section, classifier, images, generator):
    labels = torch.arange(10) % 4
    targets = torch.randn(10, 12, generator=generator, dtype=torch.float64)
    value, features, _ = evaluate(FeatureMatch(targets), section, images)
    logits = classifier.head(features)
    torch.testing.assert_close(value, mse_loss(features, targets))
    torch.testing.assert_close(
        evaluate(LabelMatch(classifier.head, labels), section, images)[0], cross_entropy(logits, labels)
    )
    torch.testing.assert_close(
        evaluate(SelfConfidence(classifier.head, 1000.0), section, images)[0],
        cross_entropy(logits / 1000, logits.argmax(1)),
    )
    mean = logits.softmax(1).mean(0)
    expected = 1 + (mean * mean.log()).sum() / math.log(4)
    torch.testing.assert_close(evaluate(ClassBalance(classifier.head), section, images)[0], expected)


@pytest.mark.parametrize("direction", ["batch-to-model", "model-to-batch"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_statistics_kl_layer_by_layer(knowledge, section, images, direction, reduction):
    layers = knowledge.moments
    value, _, activations = evaluate(StatisticsKl(layers, direction, reduction), section, images)
    expected = []
    for layer in layers:
        x = activations[layer.point]
        m1, v1 = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0) + 1e-8
        m2, v2 = layer.mean, layer.variance
        if direction == "model-to-batch":
            m1, v1, m2, v2 = m2, v2, m1, v1
        expected.append(0.5 * (v2.log() - v1.log() - 1 + (v1 + (m1 - m2) ** 2) / v2).mean())
    total = sum(expected) / (len(layers) if reduction == "mean" else 1)
    torch.testing.assert_close(value, total)


def test_moment_distances_layer_by_layer(knowledge, section, images):
    expected = {"norm": 0, "square": 0, "relative": 0}
    _, _, activations = evaluate(MomentDistance(knowledge.moments), section, images)
    for layer in knowledge.moments:
        x = activations[layer.point]
        dm, dv = x.mean((0, 2, 3)) - layer.mean, x.var((0, 2, 3), correction=0) - layer.variance
        expected["norm"] += dm.norm() + dv.norm()
        expected["square"] += dm.square().mean() + dv.square().mean()
        expected["relative"] += (dm.square() / layer.variance).mean() + (dv / layer.variance).square().mean()
    for measure, number in expected.items():
        torch.testing.assert_close(evaluate(MomentDistance(knowledge.moments, measure), section, images)[0], number)


def test_the_moments_of_a_network_that_learns_on_are_those_it_has_then(classifier):
    backbone = deepcopy(classifier.backbone)
    known = Knowledge(backbone)
    before = known.moments[0].mean
    backbone.train()(torch.randn(8, 1, 8, 8, dtype=torch.float64) + 3)
    assert not torch.equal(known.moments[0].mean, before)
    assert torch.equal(known.moments[0].mean, Knowledge(backbone).moments[0].mean)


def test_bad_terms_are_refused(knowledge):
    with pytest.raises(ValueError, match="weight of term 'kl' must not be negative"):
        Term("kl", -1.0, StatisticsKl(knowledge.moments))
    with pytest.raises(ValueError, match="at least one layer"):
        StatisticsKl([])
    with pytest.raises(ValueError, match="cap of at least 1"):
        Boost(0.5)
