"""The published fits of a Laplace covariance and the published ways to merge them, against naive forms."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from remix.laplace import FrobeniusRecipe, fit
from remix.laplace.fitting.frobenius import descend_on_matrix
from remix.statistics import CodeLaplace, Memory, PaperLaplace, measure_layers, merge_layers

NETWORK = nn.Sequential(nn.Identity(), nn.BatchNorm1d(6))
KEY = "1:input:channels"
KINDS = ("laplace-paper", "laplace-code", "dense")


def measured(seed: int, size: int = 400):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(6, 6, generator=generator)
    rows = torch.randn(size, 6, generator=generator) @ mix + torch.randn(6, generator=generator)
    return measure_layers(NETWORK, [rows], ["1:input"], kinds=KINDS)[KEY]


def correlation(matrix):
    scale = matrix.diagonal().rsqrt()
    return scale[:, None] * matrix * scale


def naive(target, steps=200, correlated=False, start=None):
    """The published loop: Adam at 0.01 on (u, w, a), d = softplus(u) + 1e-6, mean of squared differences."""
    size = len(target)
    u = torch.zeros(size, dtype=torch.float64)
    w, a = torch.full_like(u, 0.1), torch.linspace(-1, 1, size, dtype=torch.float64)
    if start is not None:
        d, w, a = (part.detach().double().clone() for part in start)
        u = (torch.exp(d - 1e-6) - 1).log()
    parameters = [part.requires_grad_() for part in (u, w, a)]
    adam = torch.optim.Adam(parameters, lr=0.01)

    def model():
        return torch.diag(torch.nn.functional.softplus(u) + 1e-6) + w[:, None] * w * (-(a[:, None] - a).abs()).exp()

    assert start is not None or model().diagonal()[0].item() == pytest.approx(0.7031482, abs=1e-7)
    for _ in range(steps):
        adam.zero_grad()
        found = correlation(model()) if correlated else model()
        (found - target).square().mean().backward()
        adam.step()
    return model().detach()


def test_the_papers_fit_is_to_the_covariance_and_the_codes_to_the_correlation():
    layer = measured(0)
    paper, code = layer.covariances["laplace-paper"].normal, layer.covariances["laplace-code"].normal
    target = layer.covariance.double()
    torch.testing.assert_close(paper.covariance_matrix.double(), naive(target), atol=1e-3, rtol=1e-3)
    expected = correlation(naive(correlation(target), correlated=True))
    torch.testing.assert_close(correlation(code.covariance_matrix.double()), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(code.variance, layer.variance, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(code.loc, layer.mean)


def test_a_given_matrix_and_the_rows_behind_it_give_the_same_fit():
    rows = torch.randn(500, 8, generator=torch.Generator().manual_seed(0)).double().cumsum(1)
    centred = rows - rows.mean(0)
    recipe = FrobeniusRecipe(steps=60)
    by_rows = fit(rows, "frobenius", recipe=recipe).covariance_matrix
    diag, weight, coord = descend_on_matrix(centred.T @ centred / 500, recipe)
    matrix = torch.diag(diag) + weight[:, None] * weight * (-(coord[:, None] - coord).abs()).exp()
    torch.testing.assert_close(matrix, by_rows, atol=1e-3, rtol=1e-3)


def test_the_paper_merges_two_models_without_the_spread_of_their_means():
    one, two = measured(0), measured(1)
    both = merge_layers([(30, {KEY: one}), (10, {KEY: two})])[KEY].covariances["laplace-paper"]
    models = [layer.covariances["laplace-paper"].normal.covariance_matrix.double() for layer in (one, two)]
    torch.testing.assert_close(
        both.normal.covariance_matrix.double(), naive(0.75 * models[0] + 0.25 * models[1]), atol=1e-3, rtol=1e-3
    )


def test_the_code_blends_the_old_fit_with_what_was_measured_and_begins_at_the_old_fit():
    one, two = measured(0), measured(1)
    both = merge_layers([(30, {KEY: one}), (10, {KEY: two})])[KEY].covariances["laplace-code"]
    old = one.covariances["laplace-code"].normal
    sigma = old.covariance.rescale(torch.ones(6))
    blend = 0.75 * correlation(old.covariance_matrix.double()) + 0.25 * correlation(two.covariance.double())
    expected = correlation(naive(blend, correlated=True, start=(sigma.diag, sigma.weight, sigma.coord)))
    torch.testing.assert_close(correlation(both.normal.covariance_matrix.double()), expected, atol=1e-3, rtol=1e-3)
    assert both.correlation is None


def test_they_are_saved_beside_other_kinds_and_what_was_measured_is_not(tmp_path):
    layer = measured(0)
    both = replace(layer, covariances={kind: layer.covariances[kind] for kind in KINDS[:2]})
    memory = Memory()
    memory.layers = {KEY: both}
    memory.save(tmp_path / "memory")
    again = Memory.load(tmp_path / "memory").layers[KEY]
    for kind, type_ in (("laplace-paper", PaperLaplace), ("laplace-code", CodeLaplace)):
        assert type(again.covariances[kind]) is type_
        assert torch.equal(again.covariances[kind].normal.covariance_matrix, layer.prior(kind).covariance_matrix)
    assert again.covariances["laplace-code"].correlation is None


def test_of_whole_maps_the_papers_fit_is_that_of_its_images_and_the_code_has_none():
    maps = torch.randn(30, 2, 3, 3, generator=torch.Generator().manual_seed(0)).double().cumsum(-1) + 1
    network, place = nn.Sequential(nn.Identity()), ["0:input"]
    kinds = ("laplace", "laplace-paper")  # the transform is only of ours
    (layer,) = measure_layers(network, maps.split(8), place, "map", kinds, transform="dct").values()
    expected = fit(maps.flatten(1), "frobenius", recipe=FrobeniusRecipe.for_images(30))
    assert layer.normal.basis is not None
    torch.testing.assert_close(layer.prior("laplace-paper").covariance_matrix, expected.covariance_matrix)
    torch.testing.assert_close(layer.prior("laplace-paper").mean, maps.flatten(1).mean(0))
    with pytest.raises(ValueError, match="of whole maps cannot be merged: use kind 'laplace'"):
        merge_layers([(1, {layer.key: layer}), (1, {layer.key: layer})])
    with pytest.raises(ValueError, match=r"a Laplace covariance \(code\) at '0:input' is of at most 1024 channels"):
        measure_layers(network, [maps], place, "map", ("laplace-code",))


@pytest.mark.parametrize("kind", ["laplace-paper", "laplace-code"])
def test_a_fit_tells_how_likely_its_rows_are(kind):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(400, 6, generator=generator) @ torch.randn(6, 6, generator=generator)
    layer = measure_layers(NETWORK, [rows], ["1:input"], kinds=[kind])[KEY]
    report = layer.covariances[kind].normal.report
    assert report.train_log_likelihood == pytest.approx(float(layer.prior(kind).log_prob(rows).mean()) / 6, abs=2e-3)
    diagonal = float(layer.prior("diagonal").log_prob(rows).mean()) / 6
    assert report.diagonal_train_log_likelihood == pytest.approx(diagonal, abs=2e-3)
