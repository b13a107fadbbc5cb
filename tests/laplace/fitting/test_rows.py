"""Rows that are read in passes: the same moments, nearly the same fit, in memory that does not grow with the rows."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from remix.laplace import FrobeniusRecipe, fit
from remix.laplace.basis import Dct2
from remix.laplace.fitting.likelihood import ChainData, StreamedRows
from remix.laplace.fitting.rows import MEMORY, Rows, open_rows
from remix.laplace.fitting.standardise import standardise, survey


class Anew:
    """Batches that start anew every time."""

    def __init__(self, parts):
        self.parts, self.passes = parts, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.parts)


def little(dim, rows):
    """Memory in which ``rows`` rows of ``dim`` features can be fitted."""
    return 1000 * dim + 3 * 4 * dim * rows


@pytest.fixture
def rows(model):
    return model(40, dtype=torch.float32).rsample((300,), generator=torch.Generator().manual_seed(1))


def sources(x, folder):
    np.save(folder / "x.npy", x.numpy())
    return [x, x.numpy(), np.load(folder / "x.npy", mmap_mode="r"), Anew(x.split(70)), x.split(41)]


def test_all_sources_give_the_same_rows_and_moments(rows, tmp_path):
    wanted = standardise(Rows(rows), None, None, None)
    for source in sources(rows, tmp_path):
        passes = open_rows(source, little(40, 60))
        assert passes.streamed
        found = survey(passes, None, None)
        assert passes.rows == 300
        assert torch.equal(torch.cat(list(passes.blocks())), rows)
        assert torch.equal(passes.take(torch.tensor([299, 0, 7])), rows[[299, 0, 7]])
        torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.variance, wanted.variance, rtol=1e-5, atol=0)
        torch.testing.assert_close(found.largest, wanted.largest, rtol=1e-4, atol=0)


def test_moments_in_the_cosine_basis():
    layout = (2, 8, 8)
    x = torch.randn(200, 128) * torch.rand(128) + 3
    passes = open_rows(x, little(128, 20))
    found = survey(passes, Dct2(layout), layout)
    wanted = standardise(Rows(x), None, layout, Dct2(layout))
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.variance, wanted.variance, rtol=1e-4, atol=0)
    torch.testing.assert_close(found.plain, x.mean(0).double(), rtol=1e-5, atol=1e-6)


def test_likelihood_and_gradients_are_those_of_all_rows_at_once(path, rows):
    passes = open_rows(rows, little(40, 60))
    found = survey(passes, None, None)
    order = torch.randperm(40)
    loading, phi = torch.rand(40).double() - 0.5, torch.rand(40).double()
    phi[0] = 0
    streamed = StreamedRows(passes, found, None, order).nll(loading, phi)
    whole = ChainData(standardise(Rows(rows), None, None, None), order).nll(loading, phi)
    for got, wanted in zip(streamed, whole, strict=True):
        torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [None, (10, 2, 2)])
def test_a_fit_in_passes_is_nearly_as_good_as_one_in_memory(rows, tmp_path, layout):
    held = rows[200:]
    best = fit(rows[:200], layout=layout, transform=None)
    likelihood = best.log_prob(held).mean() / 40
    diagonal = torch.distributions.Normal(rows[:200].mean(0), rows[:200].std(0)).log_prob(held).sum(1).mean() / 40
    for source in sources(rows[:200], tmp_path):
        normal = fit(source, layout=layout, transform=None, memory=little(40, 100))
        reached = normal.log_prob(held).mean() / 40
        assert reached - diagonal > 0.9 * (likelihood - diagonal)
        assert "of 200 rows" in str(normal.report)
        assert normal.report.frobenius_error is None
        assert normal.report.train_log_likelihood == pytest.approx(float(normal.log_prob(rows[:200]).mean()) / 40, 1e-3)


def test_few_passes_are_enough(rows):
    source = Anew(rows.split(50))
    fit(source, memory=little(40, 60))
    assert source.passes < 15


def test_maps_in_passes_take_the_cosine_basis():
    rng = torch.Generator().manual_seed(0)
    coarse = torch.randn(200, 4, 2, 2, generator=rng)
    x = torch.nn.functional.interpolate(coarse, (8, 8), mode="bilinear") + 0.05 * torch.randn(
        200, 4, 8, 8, generator=rng
    )
    x = x.flatten(1)
    normal = fit(x[:150], layout=(4, 8, 8), memory=little(256, 40))
    assert normal.basis == Dct2((4, 8, 8))
    assert normal.report.train_gain > 0.5
    assert normal.log_prob(x[150:]).mean() / 256 > normal.report.diagonal_train_log_likelihood + 0.5


def test_independent_features_in_passes_give_the_diagonal():
    x = torch.randn(100, 64, generator=torch.Generator().manual_seed(2))
    assert fit(x, memory=little(64, 40)).report.scale == 0


def test_the_papers_recipe_in_passes(rows, tmp_path):
    """Where single rows can be read, the same batches as in memory; else batches in the order of the rows."""
    recipe = FrobeniusRecipe(steps=60, batch_size=32)
    wanted = fit(rows, "frobenius", recipe=recipe)
    for source in sources(rows, tmp_path):
        got = fit(source, "frobenius", recipe=recipe, memory=little(40, 60))
        if isinstance(source, torch.Tensor | np.ndarray):
            torch.testing.assert_close(got.weight, wanted.weight, rtol=1e-3, atol=1e-4)
        assert got.report.train_log_likelihood == pytest.approx(float(got.log_prob(rows).mean()) / 40, abs=1e-3)
        assert got.report.train_log_likelihood == pytest.approx(wanted.report.train_log_likelihood, abs=1)


@pytest.mark.parametrize(
    ("x", "memory", "message"),
    [
        (iter([torch.randn(100, 40), torch.randn(100, 40)]), little(40, 20), "read only once"),
        (torch.randn(100, 40), 1000, "give memory=47680"),
        (Anew([torch.randn(90, 40), torch.randn(9, 41)]), little(40, 20), r"\(9, 41\)"),
        (torch.full((100, 40), math.nan), little(40, 20), "finite"),
        (torch.ones(100, 40), little(40, 20), "distinct rows"),
        (Anew([torch.ones(100, 40, dtype=torch.int64)]), little(40, 20), "int64"),
    ],
)
def test_bad_rows_are_refused(x, memory, message):
    with pytest.raises(ValueError, match=message):
        fit(x, memory=memory)


def test_by_default_small_rows_stay_in_memory(rows):
    assert not open_rows(rows, MEMORY).streamed


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows():
    """96 MB of rows from a source that starts anew, fitted in 30 MB: read in passes, never kept."""
    code = """
import resource, torch
from remix.laplace import fit
class Source:
    def __iter__(self):
        rows = torch.randn(100, 20_000, generator=torch.Generator().manual_seed(0)).cumsum_(1)
        for number in range(12):
            yield rows.roll(number * 997, 1)
fit(torch.randn(50, 20_000), layout=(5, 50, 80), transform=None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
normal = fit(Source(), layout=(5, 50, 80), transform=None, memory=30 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, normal.report.train_gain)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes, gain = (float(word) for word in done.stdout.split())
    assert kilobytes < 60_000
    assert gain > 0.5
