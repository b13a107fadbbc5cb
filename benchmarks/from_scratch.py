"""What raises a network that learns from scratch: the method drift, one change at a time, and lda beside it.

    python -m benchmarks.from_scratch --data DIR --rows none,held --seeds 10
    python -m benchmarks.from_scratch --data DIR --group tiny --rows none,both --seeds 10,11,12

A row of a group is the same run with other settings (`ROWS`): with synthetic images, held or as witnesses of the drift,
or with other training. Rows with the same first task learn it once a seed, so that later tasks are what differs.
Accuracy is of validation images, and beside it that of a head on the real features of all classes (the oracle), which
tells what the network lost. The JSON file is written after every row; what it holds already is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from remix.data import TaskStream
from remix.experiments.config import RunConfig, resolve
from remix.experiments.paired import spread
from remix.experiments.plan import check_run, create_run_head, create_team, load_tasks, method_of
from remix.experiments.run import oracle_accuracy
from remix.learning.engine import Engine
from remix.learning.engine_state import engine_tensors, restore
from remix.networks import Classifier
from remix.support.files import write_text
from remix.support.text import as_markdown

_PRIOR = "settings.inversion.prior"
_MANY = ("settings.samples=1600", "settings.samples_per_task=800")
ROWS: dict[str, tuple[str, ...]] = {
    "none": (),
    "held": ("settings.distil_on=both",),
    "witnesses": ("settings.witnesses=both",),
    "witnesses alone": ("settings.witnesses=synthetic",),
    "both": ("settings.distil_on=both", "settings.witnesses=both"),
    "held, four times as many": ("settings.distil_on=both", *_MANY),
    "witnesses, four times as many": ("settings.witnesses=both", *_MANY),
    **{
        f"{use}, {name}": (f"settings.{setting}=both", *words)
        for use, setting in (("held", "distil_on"), ("witnesses", "witnesses"))
        for name, words in {
            "diagonal": (f"{_PRIOR}.kind=diagonal",),
            "laplace": (f"{_PRIOR}.kind=laplace",),
            "laplace-dct": (f"{_PRIOR}.kind=laplace-dct", f"{_PRIOR}.form=typical", "settings.view=map"),
            "dense": (f"{_PRIOR}.kind=dense",),
        }.items()
    },
    "features held 4 times as strongly": ("settings.distillation=4",),
    "features held 16 times as strongly": ("settings.distillation=16",),
    "features held through a projector": ("settings.projector=true",),
    "BatchNorm held": ("settings.batchnorm=held",),
    "anti-collapse": ("settings.collapse=1", "settings.covariance=dense", "settings.blocks=last"),
    "last block alone": ("settings.blocks=last",),
    "map by an MLP": ("settings.map=mlp",),
    "later rate 0.02": ("settings.later.lr=0.02",),
    "rotations": ("settings.rotations=true",),
    **{
        f"{head}{name}": (f"method={head}", *words)
        for head in ("lda", "ranpac", "fecam")
        for name, words in (("", ()), (", rotations", ("settings.rotations=true",)))
    },
}  # fmt: skip
"""Words of --set over the preset's settings, of drift unless another method is named, by name."""

_OF_FIRST = ("method=", "settings.rotations=", "settings.collapse=")
"""Words that change the first task."""

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cifar": ("cifar100-mini", ("data.classes=12", "data.tasks=3")),
    "first 12": ("cifar100-mini", ("data.classes=20", "data.first=12", "data.tasks=3")),
    "tiny": ("tiny-mini", ("data.classes=12", "data.tasks=3")),
    "five tasks": ("cifar100-mini", ()),
}
"""Preset and words of --set."""


@dataclass
class _Run:
    """An engine of one row, or of what all rows begin with."""

    config: RunConfig
    stream: TaskStream

    def engine(self) -> Engine:
        config = self.config
        network = check_run(config, self.stream)
        return Engine(
            Classifier(network.backbone, create_run_head(config, network.backbone)),
            method_of(config),
            network.preprocessing.normalisation,
            config.augment,
            batch_size=config.batch_size,
            seed=config.seed,
            team=create_team(config),
        )


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with cifar-100-binary/ or tiny-imagenet-200/")
    parser.add_argument("--group", default="cifar", choices=GROUPS)
    parser.add_argument("--rows", default="none,held,witnesses,both", help="names of rows, separated by commas; or all")
    parser.add_argument("--seeds", default="10")
    parser.add_argument("--precision", default="32", choices=("32", "bf16-mixed"))
    parser.add_argument("--out", type=Path, default=Path("docs/bench/from_scratch.json"))
    typed = parser.parse_args()
    wanted = list(ROWS) if typed.rows == "all" else _named(typed.rows)
    for seed in map(int, typed.seeds.split(",")):
        key = {"group": typed.group, "seed": seed, "precision": typed.precision}
        done = [row["row"] for row in rows_of(typed.out) if key.items() <= row.items()]
        learn_rows([name for name in wanted if name not in done], key, typed.data, typed.out)
    print(table(rows_of(typed.out)))


def learn_rows(names: Sequence[str], key: dict[str, Any], data: str | None, out: Path) -> None:
    """Rows of one seed, from as few first tasks as there are."""
    begun: dict[tuple[str, ...], dict[str, Any]] = {}
    for name in names:
        run, first = of_row(name, key, data), tuple(word for word in ROWS[name] if word.startswith(_OF_FIRST))
        if first not in begun:
            begun[first] = first_task(run)
        row = {**key, "row": name, "words": list(ROWS[name]), **learned(run, begun[first])}
        write_text(out, json.dumps({"rows": [*rows_of(out), row]}, indent=1) + "\n")
        print(json.dumps(row), flush=True)


def of_row(name: str, key: dict[str, Any], data: str | None) -> _Run:
    """The run of a row, and its tasks."""
    preset, words = GROUPS[key["group"]]
    config = resolve(
        preset, seed=key["seed"], precision=key["precision"], validation=data is not None,
        assignments=["method=drift", *words, *ROWS[name]],
    )  # fmt: skip
    return _Run(config, load_tasks(config.data, data))


def first_task(run: _Run) -> dict[str, Any]:
    """Where an engine stands that has trained on the first task and not yet measured anything."""
    engine, found = run.engine(), {}
    began = time.process_time()

    def look() -> None:
        stages = engine.method.stages("first")
        if engine.done == 2 + len(stages) and not found:
            tensors, record = engine_tensors(engine)
            found["state"] = {key: tensor.clone() for key, tensor in tensors.items()}, record

    engine.learn(run.stream[0], look)
    return {**found, "minutes": (time.process_time() - began) / 60}


def learned(run: _Run, begun: dict[str, Any]) -> dict[str, Any]:
    """All other tasks from there: accuracies, and processor minutes with those of the first task."""
    engine, stream = run.engine(), run.stream
    restore(engine, *begun["state"], {})
    spent, oracles, by_task = begun["minutes"], [], []
    for index in range(len(stream)):
        began = time.process_time()
        engine.learn(stream[index])
        spent += (time.process_time() - began) / 60
        right, count = engine.evaluate_tasks([stream.test(before) for before in range(index + 1)])
        by_task = [100 * one / of for one, of in zip(right, count, strict=True)]
        oracles.append(round(oracle_accuracy(engine, stream, index), 2))
    return {
        "accuracy": round(fmean(by_task), 2),
        "by_task": [round(one, 2) for one in by_task],
        "oracle": oracles,
        "processor_minutes": round(spent, 2),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row a line, by group; differences to the row none over the seeds that both have."""
    lines = []
    for group, name in dict.fromkeys((row["group"], row["row"]) for row in rows):
        mine = {row["seed"]: row for row in rows if (row["group"], row["row"]) == (group, name)}
        without = {row["seed"]: row for row in rows if (row["group"], row["row"]) == (group, "none")}
        gains = [row["accuracy"] - without[seed]["accuracy"] for seed, row in mine.items() if seed in without]
        accuracy, oracle, minutes = (
            spread([pick(row) for row in mine.values()])
            for pick in (_accuracy, lambda row: row["oracle"][-1], lambda row: row["processor_minutes"])
        )
        gain = "" if name == "none" or not gains else f"{spread(gains)}" if len(gains) > 1 else f"{gains[0]:+.2f}"
        lines.append([group, name, str(len(mine)), str(accuracy), gain, str(oracle), f"{minutes.mean:.1f}"])
    heads = ["group", "row", "seeds", "last accuracy", "less none", "oracle", "processor minutes"]
    return as_markdown(heads, lines, left=2)


def _accuracy(row: dict[str, Any]) -> float:
    return float(row["accuracy"])


def _named(text: str) -> list[str]:
    """Names separated by semicolons, or by commas where none has a comma in it."""
    found = [name.strip() for name in (text.split(";") if ";" in text else text.split(","))]
    if unknown := [name for name in found if name not in ROWS]:
        raise SystemExit(f"no row {unknown[0]!r}; there are: {'; '.join(ROWS)}")
    return found


def rows_of(out: Path) -> list[dict[str, Any]]:
    """What the file holds."""
    found: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if out.exists() else []
    return found


if __name__ == "__main__":
    main()
