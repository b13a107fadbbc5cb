"""The measured table of docs/bench/learn.md is that of its file."""

import json
from pathlib import Path

from benchmarks.learn_imagenette import table

ROOT = Path(__file__).resolve().parents[2]
STEPS = json.loads((ROOT / "docs" / "bench" / "learn_imagenette.json").read_text())["steps"]


def test_the_table_is_that_of_the_file():
    assert table(STEPS, 30) in (ROOT / "docs" / "bench" / "learn.md").read_text()


def test_every_seed_ran_every_method():
    done = {(row["seed"], row["method"], row["step"]) for row in STEPS if row["photographs"] == 30}
    assert done == {(s, m, n) for s in (0, 1, 2) for m in ("auto", "remix", "finetune", "joint") for n in (1, 2, 3)}
