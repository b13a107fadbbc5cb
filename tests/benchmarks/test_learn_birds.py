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


@pytest.mark.parametrize(("design", "each"), sorted({(tuple(row["design"]), row["each"]) for row in STEPS}))
def test_the_table_of_a_design_is_that_of_the_file(design, each):
    assert table(STEPS, EXACT, design, each) in (ROOT / "docs" / "bench" / "learn.md").read_text()


def test_auto_is_above_every_method_that_trains():
    auto = {(*row["design"], row["each"], row["set"]): row["all"] for row in EXACT if row["head"] == "auto"}
    auto |= {
        (*row["design"], row["each"], row["set"]): row["all"]
        for row in STEPS
        if row["method"] == "auto" and "all" in row
    }
    trained = [row for row in STEPS if row["method"] != "auto" and row.get("all") is not None]
    compared = [(row["all"], auto.get((*row["design"], row["each"], row["set"]))) for row in trained]
    pairs = [(theirs, ours) for theirs, ours in compared if ours is not None]
    assert len(pairs) >= 10
    assert all(ours > theirs for theirs, ours in pairs)


def test_one_species_at_a_time_is_as_good_as_five_and_as_all_at_once():
    auto = {tuple(row["design"]): row["all"] for row in STEPS if row["method"] == "auto" and "all" in row}
    assert auto[10, 1, 1, 1, 1, 1] == auto[10, 5] == auto[15,]
