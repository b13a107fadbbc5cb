"""The table of docs/bench/learn.md about exact heads against training is that of its file."""

import json
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.crossover_cifar import table

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "docs" / "bench" / "crossover_cifar.json").read_text())["rows"]


def test_the_table_is_that_of_the_file():
    assert table(ROWS) in (ROOT / "docs" / "bench" / "learn.md").read_text()


def means(start, images):
    found = {}
    for row in ROWS:
        if (row["start"], row["images"]) == (start, images):
            found.setdefault(row["method"], []).append(row["all"])
    return {method: mean(values) for method, values in found.items()}


@pytest.mark.parametrize("start", ["cifar10", "far"])
def test_with_weights_auto_is_the_highest_row(start):
    sizes = {row["images"] for row in ROWS if row["start"] == start}
    assert sizes >= {25, 100}
    assert all(means(start, images)["auto"] == max(means(start, images).values()) for images in sizes)
