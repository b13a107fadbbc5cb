"""What docs/bench/learn.md says of unknown images is what the file of the benchmark holds."""

import json
from pathlib import Path
from statistics import mean

import pytest
import torch

from benchmarks.unknown import HEADS, SCORES, USED, auroc, summary

ROOT = Path(__file__).resolve().parents[2]
FOUND = json.loads((ROOT / "docs" / "bench" / "unknown.json").read_text())
PAGE = (ROOT / "docs" / "bench/learn.md").read_text()


def test_the_table_is_that_of_the_file():
    assert summary(FOUND) in PAGE
    assert {(row["head"], row["set"], row["step"]) for row in FOUND} >= {
        (head, number, step) for head in HEADS for number in range(3) for step in (1, 2, 3)
    }


def test_the_score_that_is_used_is_the_best_of_the_default_head_and_the_others_are_told():
    last = [row["auroc"] for row in FOUND if row["head"] == "auto" and row["step"] == 3]
    means = {name: mean(row[name] for row in last) for name in SCORES}
    assert max(means, key=means.get) == USED
    assert ", ".join(f"{name} {means[name]:.1f}" for name in SCORES[:-1]) in PAGE


def test_the_area_under_the_curve_counts_pairs():
    known, unknown = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0, 4.0])
    assert auroc(known, unknown) == pytest.approx(100 * 3.5 / 6)
