"""Quantiles of scores: shares read from them, merged over steps, kept in files."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from remix.statistics import Calibration, Memory
from remix.statistics.statistic import Tensors


def scores(images: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(images, generator=torch.Generator().manual_seed(images), dtype=torch.float64) + shift


def test_shares_are_those_of_the_images():
    known = scores(500)
    found = Calibration.of(known, 500)
    for asked in (-1.5, 0.0, 1.0):
        share = float(found.share(torch.tensor([asked])))
        assert share == pytest.approx(float((known <= asked).double().mean()), abs=0.01)
    assert found.share(torch.tensor([-100.0, 100.0])).tolist() == [0.0, 1.0]


def test_steps_merge_as_if_their_images_had_come_together():
    first, second = scores(300), scores(100, 2.0)
    merged = Calibration.of(first, 300).merge(Calibration.of(second, 100, 0.5))
    together = Calibration.of(torch.cat([first, second]), 400)
    assert (merged.images, merged.scale) == (400, 0.5)
    assert float((merged.quantiles - together.quantiles).abs().mean()) < 0.03
    assert Calibration.of(None, 5).merge(merged).quantiles is None


def test_scores_that_are_all_the_same_are_all_familiar():
    found = Calibration.of(torch.full((6,), 2.0), 6)
    assert found.merge(found).share(torch.tensor([1.9, 2.0, 2.1])).tolist() == [0.0, 1.0, 1.0]


def test_a_file_gives_it_back(tmp_path):
    memory = Memory()
    memory.keep(Calibration.of(scores(50), 50, 0.7))
    memory.save(tmp_path / "memory.safetensors")
    found = Memory.load(tmp_path / "memory.safetensors").get(Calibration.name)
    assert (found.scale, found.images) == (0.7, 50)
    assert torch.equal(found.quantiles, memory.get(Calibration.name).quantiles)
    rest, told = memory.without([0])
    assert rest.get(Calibration.name) is not None
    assert any("of all classes together" in text for text in told)
    assert "101 quantiles" in memory.describe()[0].detail


def test_what_is_none_is_refused():
    good = Calibration.of(scores(50), 50)
    for change in (
        {"scale": 0.0}, {"scale": float("nan")}, {"scale": "1"}, {"images": 0}, {"images": 1.5},
        {"quantiles": torch.zeros(3)}, {"quantiles": good.quantiles.flip(0)},
        {"quantiles": good.quantiles * float("inf")},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be|measured on"):
            replace(good, **change)
    with pytest.raises(ValueError, match="is missing"):
        Calibration.from_tensors(Tensors({}), good.describe())
    with pytest.raises(ValueError, match="no scores"):
        Calibration.of(None, 5).share(torch.zeros(1))
