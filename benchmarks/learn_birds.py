"""Methods that train, and auto, on birds: species of CUB-200-2011 in steps, from an ImageNet ResNet-34.

    python -m benchmarks.learn_birds DATA --methods remix,finetune,joint --steps 8,4,4 --each 30 --sets 0,1,2

Every step is a step of `remix.Learner` with the defaults of the package; after the last one the official test
photographs of all species are classified. Sets are those of `benchmarks.exact_heads`: species and photographs are drawn
by a seed, which is that of everything random in learning too. "joint" is fine-tuning of the last
stage, in one step, with the photographs of all species. The JSON file is written after every
step; what it holds already is not run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import remix
from benchmarks.exact_heads import PROBE, WEIGHTS, bird_options, drawn, percent, shown, some, where
from remix.data import Splits
from remix.data.cub200 import cub200
from remix.experiments.paired import spread
from remix.support.files import write_text
from remix.support.text import as_markdown

BESIDE = ("auto", "discriminant, last block, shrinkage 0.3", PROBE)
ORDER = {
    **{name: name for name in BESIDE}, "remix": "remix", "finetune": "fine-tuning",
    "joint": "joint fine-tuning of the last stage",
}  # fmt: skip


def main() -> None:
    """Run what is missing, and print the table of this design."""
    parser = bird_options(__doc__, "learn_birds")
    parser.add_argument("--methods", default="remix,finetune,joint")
    parser.add_argument("--steps", default="8,4,4", help="species of every step")
    parser.add_argument("--each", type=int, default=30, help="photographs of a species")
    parser.add_argument("--sets", default="0,1,2")
    typed = parser.parse_args()
    design = [int(size) for size in typed.steps.split(",")]
    splits = cub200(typed.data, size=typed.size, lazy=False)
    for seed in map(int, typed.sets.split(",")):
        for method in typed.methods.split(","):
            key = {"method": method, "design": design, "each": typed.each, "set": seed}
            rows = _rows(typed.out)
            if not any(key.items() <= row.items() and row["classes"] == sum(design) for row in rows):
                learn_set(key, splits, typed.data / WEIGHTS, typed.size, typed.out)
    exact = typed.out.with_name("exact_heads.json")
    print(table(_rows(typed.out), _rows(exact), design, typed.each))


def learn_set(key: dict[str, Any], splits: Splits, weights: Path, size: int, out: Path) -> None:
    """One method, step by step, on the species of a seed."""
    joint, design, seed = key["method"] == "joint", key["design"], key["set"]
    species = drawn(splits, seed, sum(design))
    settings = {"freeze": "last-stage"} if joint else {}
    learner = remix.Learner(
        "resnet34",
        "finetune" if joint else key["method"],
        weights=weights,
        size=size,
        device="cpu",
        seed=seed,
        **settings,
    )
    known = 0
    for number, count in enumerate([sum(design)] if joint else design, start=1):
        places = some(splits.train, species[known : known + count], key["each"], seed)
        images, labels = splits.train.batch(places)
        began = time.process_time()
        step = learner.learn((images, labels), classes=splits.train.classes)
        spent = time.process_time() - began
        known += count
        row = {
            **key, "step": number, "classes": known, "photographs": len(places),
            "processor_seconds": round(spent, 1), "notes": list(step.notes),
        }  # fmt: skip
        if known == len(species):
            row |= tested(learner, splits, species, count)
        mark = {name: row[name] for name in ("method", "design", "each", "set", "step")}
        kept = [one for one in _rows(out) if not mark.items() <= one.items()]
        write_text(out, json.dumps({"steps": [*kept, row]}, indent=1) + "\n")
        print(json.dumps(row), flush=True)


def tested(learner: remix.Learner, splits: Splits, species: Sequence[int], newest: int) -> dict[str, float | None]:
    """Percent right of the test photographs: of all species, of old ones, and of the newest."""
    images, labels = splits.test.batch(where(splits.test, species))
    names = learner.predict(images, top=1).names
    right = torch.tensor([name[0] == splits.test.classes[label] for name, label in zip(names, labels, strict=True)])
    old = torch.isin(labels, torch.tensor(species[: len(species) - newest], dtype=labels.dtype))
    return {"all": percent(right), "old": percent(right[old]), "new": percent(right[~old])}


def table(rows: Sequence[dict[str, Any]], exact: Sequence[dict[str, Any]], design: Sequence[int], each: int) -> str:
    """Markdown: accuracy after the last step, mean ± deviation over sets, old and new species, seconds a step.

    Args:
        rows: of this benchmark.
        exact: of `benchmarks.exact_heads`, of which some are shown, on the same sets.
        design, each: species of every step, and photographs of each.

    """
    mine = [row for row in rows if (row["design"], row["each"]) == ([*design], each)]
    last = [row for row in mine if row["classes"] == sum(design)]
    sets = {row["set"] for row in last}
    last += [
        row | {"method": row["head"]}
        for row in exact
        if (row["design"], row["each"], row["classes"]) == ([*design], each, sum(design))
        if row["set"] in sets and row["head"] in BESIDE
    ]
    found = {row["method"] for row in last}
    cells = []
    for method in [method for method in ORDER if method in found]:
        own = [row for row in last if row["method"] == method]
        steps = sorted({row["step"] for row in mine if row["method"] == method})
        seconds = [
            spread([row["processor_seconds"] for row in mine if (row["method"], row["step"]) == (method, step)]).mean
            for step in steps
        ]
        parts = [[row[part] for row in own if row[part] is not None] for part in ("all", "old", "new")]
        took = ", ".join(f"{one:.0f}" for one in seconds) or "-"
        cells.append([ORDER[method], str(len(own)), *map(shown, parts), took])
    heads = ["", "sets", "all", "old", "new", "processor seconds of the steps"]
    return as_markdown(heads, cells, left=1)


def _rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out.read_text())["steps"] if out.exists() else []
    return found


if __name__ == "__main__":
    main()
