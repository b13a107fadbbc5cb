"""Edges, the greedy path and the starts."""

import pytest
import torch

from remix.laplace import kernels
from remix.laplace.fitting import order as order_module
from remix.laplace.fitting.order import (
    FREQUENCY_ROWS,
    Edges,
    all_pairs,
    chain_start,
    correlations,
    greedy_path,
    likely_nearest,
    map_edges,
    nearest,
    one_factor_start,
)
from remix.laplace.fitting.rows import Rows
from remix.laplace.fitting.standardise import standardise


def test_correlations_are_those_of_numpy(path, standard):
    x = torch.randn(40, 12, dtype=torch.float64) @ torch.randn(12, 12, dtype=torch.float64)
    data = standard(x)
    edges, matrix = all_pairs(data)
    scale = (data.variance / x.var(0, correction=0)).sqrt()
    wanted = torch.corrcoef(x.T) / (scale[:, None] * scale[None, :])
    torch.testing.assert_close(matrix, wanted)
    torch.testing.assert_close(correlations(data, edges.start, edges.stop), edges.strength)


def test_greedy_path_takes_the_strong_edges(path):
    start, stop = torch.tensor([0, 1, 2, 0, 3], dtype=torch.int32), torch.tensor([1, 2, 0, 3, 4], dtype=torch.int32)
    strength = torch.tensor([0.9, -0.8, 0.7, 0.6, 0.5])  # 2-0 would close a cycle
    assert greedy_path(Edges(start, stop, strength), 6).tolist() == [2, 1, 0, 3, 4, 5]


def test_native_and_python_paths_agree():
    rng = torch.Generator().manual_seed(0)
    start, stop = (torch.randint(0, 300, (2000,), generator=rng, dtype=torch.int32) for _ in range(2))
    keep = start != stop
    strength = torch.randint(-50, 50, (2000,), generator=rng)[keep].float()  # many ties
    edges = Edges(start[keep], stop[keep], strength)
    with kernels.use("torch"):
        wanted = greedy_path(edges, 300)
    assert sorted(wanted.tolist()) == list(range(300))
    assert torch.equal(greedy_path(edges, 300), wanted)


def test_greedy_path_finds_a_hidden_markov_order(path, standard):
    rng = torch.Generator().manual_seed(0)
    steps = torch.randn(500, 30, generator=rng).cumsum(1)
    hidden = torch.randperm(30, generator=rng)
    edges, _ = all_pairs(standard(steps[:, hidden]))
    found = hidden[greedy_path(edges, 30)].tolist()
    assert found in (list(range(30)), list(range(29, -1, -1)))


def test_map_edges_are_the_stated_pairs_drawn_towards_the_mean_over_positions(path):
    layout = (3, 4, 5)
    data = standardise(Rows(torch.randn(50, 60)), None, layout, None)
    edges = map_edges(data, layout, stationary=0.0)
    pairs = {tuple(sorted(p)) for p in zip(edges.start.tolist(), edges.stop.tolist(), strict=True)}
    assert len(pairs) == len(edges.start) == 3 * 20 + 3 * (4 * 4 + 3 * 5 + 2 * 3 * 4)
    torch.testing.assert_close(edges.strength, correlations(data, edges.start, edges.stop))
    shrunk = map_edges(data, layout, stationary=1e9).strength[:60].reshape(20, 3)
    torch.testing.assert_close(shrunk, edges.strength[:60].reshape(20, 3).mean(0).expand(20, 3))
    assert len(map_edges(data, layout, FREQUENCY_ROWS).start) == len(pairs)


def test_many_channels_keep_only_their_strongest_pairs(path, monkeypatch):
    monkeypatch.setattr(order_module, "_MOST_EDGES", 100)
    x = torch.randn(60, 20, 4)
    x[:, 1] = x[:, 0] + 0.1 * torch.randn(60, 4)
    data = standardise(Rows(x.flatten(1)), None, (20, 2, 2), None)
    edges = map_edges(data, (20, 2, 2))
    assert len(edges.start) < 190 * 4
    assert any(a // 4 == 0 and b // 4 == 1 for a, b in zip(edges.start.tolist(), edges.stop.tolist(), strict=True))


def test_nearest_finds_the_largest_correlations(path, standard):
    data = standard(torch.randn(30, 200))
    edges = nearest(data, 5)
    _, matrix = all_pairs(data)
    wanted = matrix.abs().fill_diagonal_(0).topk(5, dim=1).values
    torch.testing.assert_close(edges.strength.abs().reshape(200, 5).sort(1, descending=True).values, wanted)


def test_projection_trees_find_most_strong_pairs(path, standard):
    rng = torch.Generator().manual_seed(0)
    pairs = torch.randn(60, 500, generator=rng).repeat_interleave(2, dim=1) + 0.1 * torch.randn(60, 1000, generator=rng)
    pairs[:, 1::2] *= torch.where(torch.arange(500) % 2 == 0, 1.0, -1.0)  # half of the partners with the other sign
    edges = likely_nearest(standard(pairs), 3, seed=0, leaf=64)
    found = {frozenset(e) for e in zip(edges.start.tolist(), edges.stop.tolist(), strict=True)}
    assert sum(frozenset((2 * i, 2 * i + 1)) in found for i in range(500)) > 450


def test_chain_start_reproduces_neighbour_correlations(path, model, standard):
    truth = model(40)
    data = standard(truth.rsample((20000,), generator=torch.Generator().manual_seed(0)))
    order = torch.argsort(truth.coord)
    chain = chain_start(data, order)
    wanted = correlations(data, order[:-1], order[1:]).double()
    got = chain.loading[:-1] * chain.phi[1:] * chain.loading[1:]
    torch.testing.assert_close(got, wanted, rtol=0, atol=0.05)
    true_loading = (truth.weight / truth.variance.sqrt())[order]
    assert (chain.loading.abs() - true_loading.abs())[1:-1].abs().median() < 0.05


def test_one_factor_start_is_the_leading_factor():
    loading = torch.linspace(0.3, 0.9, 10, dtype=torch.float64)
    matrix = loading[:, None] * loading[None, :]
    matrix.fill_diagonal_(1)
    chain = one_factor_start(matrix)
    found = torch.empty_like(loading)
    found[chain.order] = chain.loading.abs()
    assert torch.corrcoef(torch.stack([found, loading]))[0, 1] > 0.98


@pytest.mark.parametrize("size", [1, 2])
def test_a_path_visits_every_coordinate_of_a_tiny_chain(path, standard, size):
    data = standard(torch.randn(20, size))
    edges, _ = all_pairs(data)
    assert sorted(greedy_path(edges, size).tolist()) == list(range(size))
