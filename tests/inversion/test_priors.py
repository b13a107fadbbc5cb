import copy
import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from remix.inversion import BatchAverage, CovariancePrior, PriorSettings, Seen
from remix.statistics import Dense, batchnorm_points, covariance, measure_layers, register_covariance


@pytest.fixture(scope="module")
def map_layers(classifier):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(60, 1, 8, 8, generator=generator, dtype=torch.float64).cumsum(-1) / 4
    points = [str(point) for point in batchnorm_points(classifier.backbone)[2:4]]
    plain = measure_layers(classifier.backbone, [images], points, "map", ("laplace",), transform=None)
    dct = measure_layers(classifier.backbone, [images], points, "map", ("laplace",), transform="dct")
    return {"laplace": list(plain.values()), "laplace-dct": list(dct.values())}


def channel_layers(layers):
    return [layer for key, layer in layers.items() if "bn:input" in key]


def typical(ratio):
    return (ratio - 1) ** 2 if ratio < 2 else 2 * ratio - 3


@pytest.mark.parametrize("kind", ["diagonal", "laplace", "dense"])
@pytest.mark.parametrize("form", ["nll", "typical"])
def test_channel_priors_against_the_likelihood_of_every_row(layers, evaluate, images, kind, form):
    chosen = channel_layers(layers)
    value, _, activations = evaluate(CovariancePrior(chosen, kind, form), images)
    expected = []
    for layer in chosen:
        distribution = layer.prior(kind)
        nll = -distribution.log_prob(layer.view.rows(activations[layer.point])).mean()
        quadratic = 2 * nll - 2 * distribution.entropy() + layer.dim
        expected.append(nll / layer.dim if form == "nll" else typical(quadratic / layer.dim))
    torch.testing.assert_close(value, torch.stack(expected).mean())


@pytest.mark.parametrize("kind", ["diagonal", "laplace", "dense"])
def test_channel_kl_against_dense_gaussians(layers, evaluate, images, kind):
    chosen = channel_layers(layers)[:3]
    value, _, activations = evaluate(CovariancePrior(chosen, kind, "kl"), images)
    expected = []
    for layer in chosen:
        rows = layer.view.rows(activations[layer.point])
        covariance = rows.mT.cov(correction=0)
        sigma = layer.variance.diag() if kind == "diagonal" else layer.prior(kind).covariance_matrix
        if kind == "diagonal":
            covariance = covariance.diagonal().diag()
        batch = MultivariateNormal(rows.mean(0), covariance)
        expected.append(kl_divergence(batch, MultivariateNormal(layer.mean, sigma)) / layer.dim)
    torch.testing.assert_close(value, torch.stack(expected).mean(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["diagonal", "laplace", "dense"])
def test_the_frobenius_form_is_the_distance_of_covariances_and_so_are_its_gradients(layers, evaluate, images, kind):
    chosen = channel_layers(layers)[:3]
    inputs = images.clone().requires_grad_()
    value, _, activations = evaluate(CovariancePrior(chosen, kind, "frobenius"), inputs)
    expected = []
    for layer in chosen:
        covariance = layer.view.rows(activations[layer.point]).mT.cov(correction=0)
        sigma = layer.variance.diag() if kind == "diagonal" else layer.prior(kind).covariance_matrix
        expected.append((covariance - sigma).square().sum() / layer.dim)
    naive = torch.stack(expected).mean()
    torch.testing.assert_close(value, naive, rtol=1e-6, atol=1e-9)
    ours, theirs = (torch.autograd.grad(one, inputs, retain_graph=True)[0] for one in (value, naive))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-9)


def test_the_frobenius_form_of_maps_is_refused(map_layers):
    with pytest.raises(ValueError, match=r"'frobenius' compares covariance matrices of at most 1,024 channels"):
        CovariancePrior(map_layers["laplace"], "laplace", "frobenius")


@pytest.mark.parametrize("kind", ["laplace", "laplace-dct"])
@pytest.mark.parametrize("form", ["nll", "typical"])
def test_map_priors_against_a_dense_likelihood(map_layers, evaluate, images, kind, form):
    chosen = map_layers[kind]
    assert all((layer.normal.basis is not None) == (kind == "laplace-dct") for layer in chosen)
    value, _, activations = evaluate(CovariancePrior(chosen, kind, form), images)
    expected = []
    for layer in chosen:
        sigma = layer.normal.covariance_matrix
        rows = layer.view.rows(activations[layer.point]) - layer.normal.loc
        quadratic = (rows @ sigma.inverse() * rows).sum(1).mean()
        nll = 0.5 * (layer.dim * math.log(2 * math.pi) + sigma.logdet() + quadratic)
        expected.append(nll / layer.dim if form == "nll" else typical(quadratic / layer.dim))
    torch.testing.assert_close(value, torch.stack(expected).mean())


def test_map_kl_is_least_for_draws_from_the_prior(map_layers, generator):
    layer = map_layers["laplace"][0]
    prior = CovariancePrior([layer], "laplace", "kl")
    (average,) = prior.averages

    def value(rows):
        activation = rows.reshape(len(rows), *layer.shape)
        seen = Seen(slice(0, len(rows)), activation, activation, activation, {layer.point: activation})
        return prior.value([BatchAverage(average, average(seen))], len(rows)).item()

    draws = layer.normal.sample((400,), generator)
    mean = layer.normal.loc
    at_draws = value(draws)
    assert at_draws < 0.01
    assert value(mean + 0.7 * (draws - mean)) > at_draws
    assert value(mean + 1.3 * (draws - mean)) > at_draws
    shuffled = torch.stack([draws[torch.randperm(400, generator=generator), i] for i in range(layer.dim)], 1)
    assert value(shuffled) > at_draws


def test_diagonal_prior_of_a_map_needs_no_rows(map_layers, evaluate, images):
    chosen = map_layers["laplace"]
    value, _, activations = evaluate(CovariancePrior(chosen, "diagonal", "nll"), images)
    expected = [
        -layer.prior("diagonal").log_prob(layer.view.rows(activations[layer.point])).mean() / layer.dim
        for layer in chosen
    ]
    torch.testing.assert_close(value, torch.stack(expected).mean())


def test_nll_prefers_the_mean_and_the_typical_set_does_not(layers):
    (layer,) = channel_layers(layers)[3:4]
    for form, wins in (("nll", True), ("typical", False)):
        prior = CovariancePrior([layer], "laplace", form)
        (average,) = prior.averages
        draws = layer.normal.sample((20000,), torch.Generator().manual_seed(0))
        at_mean, at_draws = (
            prior.value([BatchAverage(average, average.passing(rows)[1])], 20000)
            for rows in (layer.normal.loc.expand(20000, -1), draws)
        )
        assert bool(at_mean < at_draws) == wins


def test_unknown_names_and_missing_covariances_are_refused(layers, map_layers):
    with pytest.raises(ValueError, match="unknown prior 'lapace'; there are: none, diagonal, laplace"):
        PriorSettings("lapace")
    with pytest.raises(ValueError, match="unknown form of a prior 'map'; there are: nll, typical, kl"):
        PriorSettings("laplace", "map")
    with pytest.raises(ValueError, match="no 'dense' prior"):
        CovariancePrior(map_layers["laplace"], "dense")
    with pytest.raises(ValueError, match="transform='dct'"):
        CovariancePrior(map_layers["laplace"], "laplace-dct")
    with pytest.raises(ValueError, match="at least one layer"):
        CovariancePrior([], "laplace")


def test_kl_of_too_few_rows_is_refused(layers, evaluate, images):
    top = channel_layers(layers)[-1:]
    with pytest.raises(ValueError, match="a batch of 1 gives 4 rows"):
        evaluate(CovariancePrior(top, "laplace", "kl"), images[:1])


def test_a_new_kind_of_covariance_is_a_prior_once_it_is_registered(layers, evaluate, images, monkeypatch):
    class Block(Dense):
        """Somebody's own."""

        kind, title = "block", "blocks"

    monkeypatch.setattr("remix.statistics.covariance._KINDS", copy.copy(covariance._KINDS))
    with pytest.raises(ValueError, match="unknown prior 'block'"):
        PriorSettings("block")
    register_covariance(Block)
    assert PriorSettings("block").kind == "block"
    known = channel_layers(layers)[:3]
    own = [replace(layer, covariances={"block": Block(layer.covariance)}) for layer in known]
    for form in ("nll", "typical", "kl"):
        value, _, _ = evaluate(CovariancePrior(own, "block", form), images)
        assert torch.equal(value, evaluate(CovariancePrior(known, "dense", form), images)[0])
    with pytest.raises(ValueError, match="no 'block' prior"):
        CovariancePrior(known, "block")
