"""The table of docs/bench/learn.md about exact heads against training is that of its file."""

import json
from pathlib import Path
from statistics import mean

from benchmarks.crossover_cifar import table

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "docs" / "bench" / "crossover_cifar.json").read_text())["rows"]


def test_the_table_is_that_of_the_file():
    assert table(ROWS) in (ROOT / "docs" / "bench" / "learn.md").read_text()


def test_with_weights_auto_is_the_highest_row():
    for images in {row["images"] for row in ROWS if row["start"] == "cifar10"}:
        means = {}
        for row in ROWS:
            if (row["start"], row["images"]) == ("cifar10", images):
                means.setdefault(row["method"], []).append(row["all"])
        assert max(means, key=lambda method: mean(means[method])) == "auto-adapt"
