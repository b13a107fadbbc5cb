from __future__ import annotations

import pytest
import torch
from torch import nn

from remix.statistics import laplace as module
from remix.statistics import measure_layers, merge_layers

NETWORK = nn.Sequential(nn.Identity(), nn.BatchNorm1d(6))


def task(seed: int, kinds: tuple[str, ...], size: int = 400):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(6, 6, generator=generator)
    rows = torch.randn(size, 6, generator=generator) @ mix + torch.randn(6, generator=generator)
    return rows, measure_layers(NETWORK, [rows], ["1:input"], kinds=kinds)


def mixture(parts: list[tuple[float, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    total = sum(weight for weight, _ in parts)
    mean = sum(weight / total * rows.mean(0) for weight, rows in parts)
    second = sum(weight / total * (rows - mean).mT @ (rows - mean) / len(rows) for weight, rows in parts)
    return mean, second


def test_merging_weighs_tasks_by_their_classes_not_their_rows():
    (a, one), (b, two) = task(0, ("dense",), 200), task(1, ("dense",), 900)
    merged = merge_layers([(30, one), (10, two)])["1:input:channels"]
    mean, covariance = mixture([(3, a), (1, b)])
    assert torch.allclose(merged.mean, mean, atol=1e-5)
    assert torch.allclose(merged.covariance, covariance, atol=1e-4)
    assert torch.allclose(merged.variance, covariance.diagonal(), atol=1e-4)
    assert merged.images == 1100


def test_merging_one_after_the_other_is_merging_all_at_once():
    parts = [(classes, task(seed, ("dense",))[1]) for seed, classes in enumerate((20, 10, 10))]
    together = merge_layers(parts)["1:input:channels"]
    first = merge_layers(parts[:2])
    in_turn = merge_layers([(30, first), parts[2]])["1:input:channels"]
    assert torch.allclose(together.mean, in_turn.mean, atol=1e-5)
    assert torch.allclose(together.covariance, in_turn.covariance, atol=1e-4)


def test_the_refitted_normal_has_the_mixtures_moments_and_beats_the_diagonal():
    (a, one), (b, two) = task(0, ("laplace",)), task(1, ("laplace",))
    merged = merge_layers([(5, one), (5, two)])["1:input:channels"]
    assert torch.allclose(merged.normal.loc, merged.mean, atol=1e-5)
    assert torch.allclose(merged.normal.variance, merged.variance, rtol=1e-3)
    rows = torch.cat([a, b])
    gain = merged.prior("laplace").log_prob(rows).mean() - merged.prior("diagonal").log_prob(rows).mean()
    assert gain > 0.05


def test_large_dimensions_are_merged_without_dense_matrices(monkeypatch):
    (_, one), (_, two) = task(0, ("laplace",)), task(1, ("laplace",))
    exact = merge_layers([(5, one), (5, two)])["1:input:channels"]
    monkeypatch.setattr(module, "EXACT_LIMIT", 1)
    monkeypatch.setattr(module, "_fit_moments", None)
    with torch.no_grad():
        merged = merge_layers([(5, one), (5, two)])["1:input:channels"]
    assert torch.allclose(merged.normal.variance, exact.normal.variance, rtol=1e-3)
    assert torch.allclose(merged.normal.loc, exact.normal.loc, atol=1e-4)


def test_maps_in_the_cosine_basis_are_merged_there():
    network = nn.Sequential(nn.Identity())
    maps = torch.randn(2, 12, 1, 8, 8, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    one, two = (measure_layers(network, [part], ["0:input"], "map") for part in maps)
    merged = merge_layers([(1, one), (3, two)])["0:input:map"]
    first, second = (part["0:input:map"].normal for part in (one, two))
    assert merged.normal.basis == first.basis is not None
    assert torch.allclose(merged.normal.loc, 0.25 * first.loc + 0.75 * second.loc, atol=1e-4)
    plain = measure_layers(network, [maps[0]], ["0:input"], "map", transform=None)
    with pytest.raises(ValueError, match=r"'0:input:map' is in the basis Dct2.* in one and None in the other"):
        merge_layers([(1, one), (3, plain)])


def test_merging_with_dense_kept_refits_to_the_exact_mixture():
    (a, one), (b, two) = task(0, ("laplace", "dense")), task(1, ("laplace", "dense"))
    merged = merge_layers([(1, one), (1, two)])["1:input:channels"]
    _, covariance = mixture([(1, a), (1, b)])
    assert merged.kinds == ("diagonal", "laplace", "dense")
    assert torch.allclose(merged.covariance, covariance, atol=1e-4)


def test_a_single_part_comes_back():
    _, one = task(0, ("laplace",))
    assert merge_layers([(3, one)]) == one


def test_bad_parts_are_told():
    _, one = task(0, ())
    _, dense = task(0, ("dense",))
    other = measure_layers(nn.Sequential(nn.Identity(), nn.BatchNorm1d(4)), [torch.randn(9, 4)], ["1:input"], kinds=())
    elsewhere = measure_layers(NETWORK, [torch.randn(9, 6)], ["0:input"], kinds=())
    with pytest.raises(ValueError, match="empty"):
        merge_layers([])
    with pytest.raises(ValueError, match="must be positive, got 0"):
        merge_layers([(0, one)])
    with pytest.raises(ValueError, match=r"different networks: '1:input:channels' has 6 coordinates in one and 4"):
        merge_layers([(1, one), (1, other)])
    with pytest.raises(ValueError, match=r"'1:input:channels' is in only one of them"):
        merge_layers([(1, one), (1, elsewhere)])
    with pytest.raises(ValueError, match="covariances diagonal in one and diagonal, dense in the other"):
        merge_layers([(1, one), (1, dense)])
