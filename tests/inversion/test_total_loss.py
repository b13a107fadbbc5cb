import pytest
import torch

from remix.inversion import (
    Augmentation,
    ClassBalance,
    CovariancePrior,
    FeatureMatch,
    LabelMatch,
    MomentDistance,
    Smoothness,
    StatisticsKl,
    TensorVariable,
    Term,
    TotalVariation,
)
from remix.inversion.total_loss import TotalLoss
from remix.statistics import batchnorm_points, measure_layers


@pytest.fixture(scope="module")
def maps(classifier):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(40, 1, 8, 8, generator=generator, dtype=torch.float64).cumsum(-1) / 4
    points = [str(batchnorm_points(classifier.backbone)[2])]
    return measure_layers(classifier.backbone, [images], points, "map", ("laplace",), transform="dct")


@pytest.fixture
def terms(knowledge, classifier, maps, generator):
    """One of every kind, those that are no sums over images above all."""
    own = [layer for key, layer in knowledge.layers.items() if "bn:input" in key][:3]
    targets = torch.randn(10, 12, generator=generator, dtype=torch.float64)
    return [
        Term("features", 1.0, FeatureMatch(targets)),
        Term("labels", 0.7, LabelMatch(classifier.head, torch.arange(10) % 4)),
        Term("balance", 1.3, ClassBalance(classifier.head)),
        Term("statistics", 2.0, StatisticsKl(knowledge.moments)),
        Term("distance", 0.1, MomentDistance(knowledge.moments, "norm")),
        Term("typical", 3.0, CovariancePrior(own, "laplace", "typical")),
        Term("kl", 0.3, CovariancePrior(own, "dense", "kl")),
        Term("map typical", 0.3, CovariancePrior(maps, "laplace", "typical")),
        Term("map kl", 0.3, CovariancePrior(maps, "laplace-dct", "kl")),
        Term("variation", 0.01, TotalVariation("batch-norms")),
        Term("smoothness", 0.5, Smoothness()),
    ]


def plain_weights(terms):
    return lambda values: {term.name: term.weight for term in terms}


@pytest.mark.parametrize("micro_batch", [1, 3, 5, 9, 10, 100])
def test_parts_of_a_batch_give_the_gradient_of_the_whole(terms, part, images, micro_batch):
    augmentation = Augmentation(jitter=2, flip=0.5, rotation=10, shift=0.05, scale=0.05)
    variable = TensorVariable(images, augmentation)
    whole = TotalLoss(terms, *part, variable)
    values, (gradient,) = whole.evaluate(torch.Generator().manual_seed(3), plain_weights(terms))
    parts = TotalLoss(terms, *part, variable, micro_batch)
    part_values, (part_gradient,) = parts.evaluate(torch.Generator().manual_seed(3), plain_weights(terms))
    assert part_values == pytest.approx(values, rel=1e-9)
    torch.testing.assert_close(part_gradient, gradient, rtol=1e-8, atol=1e-12)


def test_gradient_against_finite_differences(terms, part, images):
    objective = TotalLoss(terms, *part, TensorVariable(images))
    _, (gradient,) = objective.evaluate(torch.Generator(), plain_weights(terms))
    direction = torch.randn(images.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def loss(step):
        moved = TotalLoss(terms, *part, TensorVariable(images + step * direction))
        values, _ = moved.evaluate(torch.Generator(), plain_weights(terms))
        return sum(term.weight * values[term.name] for term in terms)

    difference = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert (gradient * direction).sum().item() == pytest.approx(difference, rel=1e-4)


def test_terms_on_one_layer_share_its_moments(knowledge, part, images, monkeypatch):
    from remix.inversion.terms import LayerMoments

    made = []
    original = LayerMoments.passing
    monkeypatch.setattr(LayerMoments, "passing", lambda self, *x: (made.append(self.full), original(self, *x))[1])
    own = [layer for key, layer in knowledge.layers.items() if "bn:input" in key]
    terms = [Term("kl", 1.0, StatisticsKl(knowledge.moments)), Term("prior", 1.0, CovariancePrior(own, "laplace"))]
    TotalLoss(terms, *part, TensorVariable(images)).evaluate(torch.Generator(), plain_weights(terms))
    assert made == [True] * 5


def test_sharing_changes_no_value(knowledge, part, images):
    """The running means of BatchNorm and the measured means differ: each term must see its own."""
    own = [layer for key, layer in knowledge.layers.items() if "bn:input" in key]
    terms = [Term("kl", 1.0, StatisticsKl(knowledge.moments)), Term("prior", 1.0, CovariancePrior(own, "laplace"))]
    weights = plain_weights(terms)
    together, _ = TotalLoss(terms, *part, TensorVariable(images)).evaluate(torch.Generator(), weights)
    for term in terms:
        alone, _ = TotalLoss([term], *part, TensorVariable(images)).evaluate(torch.Generator(), weights)
        assert alone[term.name] == pytest.approx(together[term.name], rel=1e-9)


def test_bad_objectives_are_refused(knowledge, part, images):
    term = Term("kl", 1.0, StatisticsKl(knowledge.moments))
    for terms in ([], [term, term], [Term("kl", 0.0, StatisticsKl(knowledge.moments))]):
        with pytest.raises(ValueError, match="different names and positive weights"):
            TotalLoss(terms, *part, TensorVariable(images))
    with pytest.raises(ValueError, match="micro_batch must be at least 1"):
        TotalLoss([term], *part, TensorVariable(images), 0)
