"""The measured table of docs/bench/learn.md is that of its file, and so is what is said about it."""

import json
from pathlib import Path
from statistics import mean, stdev

from benchmarks.exact_heads import DESIGNS, HEADS, PROBE, TIMED, accuracies, ratios

ROOT = Path(__file__).resolve().parents[2]
FOUND = json.loads((ROOT / "docs" / "bench" / "exact_heads.json").read_text())
PAGE = " ".join((ROOT / "docs" / "bench" / "learn.md").read_text().split())


def test_the_table_is_that_of_the_file():
    assert accuracies(FOUND["steps"]) in (ROOT / "docs" / "bench" / "learn.md").read_text()
    done = {(tuple(row["design"]), row["each"], row["head"], row["set"], row["step"]) for row in FOUND["steps"]}
    heads = (*HEADS, PROBE)
    assert done == {(*one, head, n, step) for one in DESIGNS for head in heads for n in range(5) for step in (1, 2, 3)}


def test_the_gain_over_a_plain_discriminant_is_that_of_the_file_and_no_head_is_above_auto():
    last = {}
    for row in FOUND["steps"]:
        if row["step"] == 3:
            last.setdefault(row["head"], {})[tuple(row["design"]), row["each"], row["set"]] = row["all"]
    gains = [value - last["discriminant, last block, shrinkage 0.3"][key] for key, value in last["auto"].items()]
    assert f"by {mean(gains):.1f} ± {stdev(gains):.1f} points, in {sum(gain > 0 for gain in gains)} of 20" in PAGE
    for design in DESIGNS:
        means = {head: mean(one for key, one in found.items() if key[:2] == design) for head, found in last.items()}
        assert means["auto"] > max(means.values()) - 0.1


def test_a_step_costs_at_most_1_3_times_the_bare_passes():
    found = [row["ratio"] for row in FOUND["times"]]
    assert len(found) == 3 * len(TIMED)
    assert max(found) <= 1.3
    assert f"{min(found):.2f} to {max(found):.2f} times" in PAGE
    assert all(f"{row['seconds']:.1f} ({row['ratio']:.2f} x)" in ratios(FOUND["times"]) for row in FOUND["times"])
