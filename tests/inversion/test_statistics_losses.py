import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from remix.inversion import MomentDistance, StatisticsKl
from remix.inversion.statistics_losses import diagonal_kl, form_of_quadratic, gaussian_kl
from remix.statistics import batchnorm_points, measure_layers


def vector(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_diagonal_kl_in_both_directions_has_the_published_values():
    shift, batch, model = vector(0.5, 0), vector(1, 1), vector(1, 4)
    assert diagonal_kl(shift, batch, model, eps=0).mean().item() == pytest.approx(0.2215735903, abs=1e-10)
    other = diagonal_kl(shift, batch, model, "model-to-batch", eps=0)
    assert other.mean().item() == pytest.approx(0.4659264097, abs=1e-10)


def test_diagonal_kl_is_that_of_torch(generator):
    m1, m2 = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    v1, v2 = torch.rand(2, 6, generator=generator, dtype=torch.float64) + 0.1
    batch, model = Normal(m1, v1.sqrt()), Normal(m2, v2.sqrt())
    torch.testing.assert_close(diagonal_kl(m1 - m2, v1, v2, eps=0), kl_divergence(batch, model))
    reverse = diagonal_kl(m1 - m2, v1, v2, "model-to-batch", eps=0)
    torch.testing.assert_close(reverse, kl_divergence(model, batch))


def test_a_batch_without_spread_is_far_but_finite():
    assert 5 < diagonal_kl(vector(0), vector(0), vector(1)).item() < 20


def test_full_kl_is_that_of_torch(generator):
    roots = torch.randn(2, 5, 9, generator=generator, dtype=torch.float64)
    batch, model = roots @ roots.mT
    shift = torch.randn(5, generator=generator, dtype=torch.float64)
    quadratic = (model.inverse() * (batch + torch.outer(shift, shift))).sum()
    ours = gaussian_kl(quadratic, model.logdet(), batch)
    zero = torch.zeros(5, dtype=torch.float64)
    expected = kl_divergence(MultivariateNormal(shift, batch), MultivariateNormal(zero, model)) / 5
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_typical_set_is_zero_where_the_form_has_its_natural_value():
    logdet = vector(0.3).sum()
    assert form_of_quadratic(vector(7.0).sum(), logdet, 7, "typical").item() == 0
    assert form_of_quadratic(vector(3.5).sum(), logdet, 7, "typical").item() == pytest.approx(0.25)
    assert form_of_quadratic(vector(10.5).sum(), logdet, 7, "typical").item() == pytest.approx(0.25)


def test_far_from_the_typical_set_the_slope_stays_what_it_is_at_twice_the_natural_value():
    logdet = vector(0.3).sum()
    slopes = []
    for number in (14.0, 14.0 + 1e-9, 700.0):
        quadratic = vector(number).requires_grad_()
        value = form_of_quadratic(quadratic.sum(), logdet, 7, "typical")
        slopes += torch.autograd.grad(value, quadratic)[0].tolist()
    assert slopes == pytest.approx([2 / 7] * 3)
    assert form_of_quadratic(vector(14.0).sum(), logdet, 7, "typical").item() == pytest.approx(1)
    assert form_of_quadratic(vector(700.0).sum(), logdet, 7, "typical").item() == pytest.approx(197)


@pytest.mark.parametrize("direction", ["batch-to-model", "model-to-batch"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_statistics_kl_layer_by_layer(knowledge, evaluate, images, direction, reduction):
    layers = knowledge.moments
    value, _, activations = evaluate(StatisticsKl(layers, direction, reduction), images)
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


def test_moment_distances_layer_by_layer(knowledge, evaluate, images):
    expected = {"norm": 0, "square": 0}
    _, _, activations = evaluate(MomentDistance(knowledge.moments), images)
    for layer in knowledge.moments:
        x = activations[layer.point]
        dm, dv = x.mean((0, 2, 3)) - layer.mean, x.var((0, 2, 3), correction=0) - layer.variance
        expected["norm"] += dm.norm() + dv.norm()
        expected["square"] += dm.square().mean() + dv.square().mean()
    for measure, number in expected.items():
        torch.testing.assert_close(evaluate(MomentDistance(knowledge.moments, measure), images)[0], number)


def test_of_whole_maps_the_spread_of_a_batch_is_the_unbiased_one(classifier, evaluate, images):
    point = batchnorm_points(classifier.backbone)[0]
    (layer,) = measure_layers(classifier.backbone, [images], [point], "map", ()).values()
    value, _, activations = evaluate(MomentDistance([layer], "square"), images[:3])
    rows = activations[point].flatten(1)
    expected = (rows.mean(0) - layer.mean).square().mean() + (rows.var(0) - layer.variance).square().mean()
    torch.testing.assert_close(value, expected)
    assert torch.isfinite(evaluate(MomentDistance([layer], "square"), images[:1])[0])


def test_no_layers_are_refused():
    with pytest.raises(ValueError, match="at least one layer"):
        StatisticsKl([])
