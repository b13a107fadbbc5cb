"""Laplace covariances of classes: what they are, what they keep, what they cost."""

import math

import pytest
import torch

from remix.statistics import Memory, class_gaussians
from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.class_laplace import chain_correlations, fit_chains


def chained(generator, classes=2, dim=6):
    loading = 0.3 + 0.6 * torch.rand(classes, dim, generator=generator)
    coordinate = torch.rand(classes, dim, generator=generator).cumsum(1)
    return torch.stack([loading, coordinate], 1)


def test_correlations_fall_with_the_distance_of_coordinates(generator):
    chains = chained(generator)
    found = chain_correlations(chains)
    for k in range(2):
        for i in range(6):
            for j in range(6):
                (r, s), (a, b) = chains[k, 0, [i, j]].tolist(), chains[k, 1, [i, j]].tolist()
                assert float(found[k, i, j]) == pytest.approx(
                    1.0 if i == j else r * s * math.exp(-abs(a - b)), rel=1e-4
                )


def test_correlations_that_are_of_this_kind_are_found_again(generator):
    wanted = chain_correlations(chained(generator))
    found = chain_correlations(fit_chains(wanted, (10_000, 10_000)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02)


def test_gaussians_keep_two_numbers_per_feature_in_place_of_a_row_and_are_saved(generator, tmp_path):
    features = torch.randn(80, 6, generator=generator) @ torch.randn(6, 6, generator=generator)
    dense = class_gaussians(features, torch.arange(80) % 2, correlated=True)
    compact = dense.compact()
    memory = Memory()
    memory.gaussians = compact
    assert memory.describe()[0].bytes == 4 * 2 * 4 * 6
    memory.save(tmp_path / "memory.safetensors")
    loaded = Memory.load(tmp_path / "memory.safetensors").gaussians
    assert torch.equal(loaded.correlations, compact.correlations)
    assert loaded.without([0])[0].labels == (1,)
    drawn = loaded.sample(torch.zeros(20_000, dtype=torch.int64), generator)
    torch.testing.assert_close(torch.corrcoef(drawn.T), compact.correlations[0], rtol=0, atol=0.05)
    joined = compact.replace(ClassGaussians((5,), (9,), dense.mean[:1], dense.std[:1], dense.correlation[:1]))
    assert joined.correlation.shape == (3, 6, 6)
    with pytest.raises(ValueError, match="not as both"):
        ClassGaussians(dense.labels, dense.counts, dense.mean, dense.std, dense.correlation, compact.chains)
    with pytest.raises(ValueError, match="loadings from -1 to 1"):
        ClassGaussians(dense.labels, dense.counts, dense.mean, dense.std, None, 3 + compact.chains.abs())
