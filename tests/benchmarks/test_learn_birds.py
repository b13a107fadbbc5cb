"""The tables of docs/bench/learn.md about birds are those of their file."""

import json
from pathlib import Path

import pytest

from benchmarks.learn_birds import table

ROOT = Path(__file__).resolve().parents[2]
STEPS, EXACT = (
    json.loads((ROOT / "docs" / "bench" / name).read_text())["steps"]
    for name in ("learn_birds.json", "exact_heads.json")
)


@pytest.mark.parametrize("design", sorted({tuple(row["design"]) for row in STEPS}))
def test_the_table_of_a_design_is_that_of_the_file(design):
    assert table(STEPS, EXACT, design, 30) in (ROOT / "docs" / "bench" / "learn.md").read_text()


def test_auto_is_the_highest_row_but_for_training_with_all_photographs():
    last = [row for row in STEPS if row.get("all") is not None and row["method"] != "joint"]
    for row in last:
        same = [one for one in last if (one["design"], one["set"]) == (row["design"], row["set"])]
        assert max(same, key=lambda one: one["all"])["method"] == "auto-adapt"
