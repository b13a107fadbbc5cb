"""The measured table of docs/learn.md is that of its file, and so is what is said about it."""

import json
from pathlib import Path
from statistics import mean, stdev

from benchmarks.exact_heads import HEADS, TIMED, accuracies, ratios

ROOT = Path(__file__).resolve().parents[2]
FOUND = json.loads((ROOT / "docs" / "bench" / "exact_heads.json").read_text())
PAGE = " ".join((ROOT / "docs" / "learn.md").read_text().split())


def test_the_table_is_that_of_the_file():
    assert accuracies(FOUND["steps"]) in (ROOT / "docs" / "learn.md").read_text()
    done = {(row["head"], row["set"], row["step"]) for row in FOUND["steps"]}
    assert done == {(head, number, step) for head in HEADS for number in range(10) for step in (1, 2, 3)}


def test_the_gain_over_a_plain_discriminant_is_that_of_the_file():
    last = {(row["head"], row["set"]): row["all"] for row in FOUND["steps"] if row["step"] == 3}
    plain = "discriminant, last block, shrinkage 0.3"
    gains = [last["lda", number] - last[plain, number] for number in range(10)]
    assert min(gains) > 0
    assert f"in all 10 sets, by {mean(gains):.1f} ± {stdev(gains):.1f} points" in PAGE


def test_a_step_costs_at_most_1_3_times_the_bare_passes():
    found = [row["ratio"] for row in FOUND["times"]]
    assert len(found) == 3 * len(TIMED)
    assert max(found) <= 1.3
    assert f"{min(found):.2f} to {max(found):.2f} times" in PAGE
    assert all(f"{row['seconds']:.1f} ({row['ratio']:.2f} x)" in ratios(FOUND["times"]) for row in FOUND["times"])
