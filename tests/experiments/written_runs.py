"""Folders of runs as `remix run` leaves them, written without running anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from remix.deploy.figures import GridRow, save_grid
from remix.experiments.config import resolve
from remix.learning.metrics import AccuracyMatrix

TASKS = 3
MACHINE = {
    "threads": 2,
    "versions": {"remix": "0.1.0", "torch": "2.13.0"},
    "hardware": {"processor": "A Processor 9000", "processors": 4, "memory_bytes": 8 * 2**30, "system": "Linux"},
}


def write_run(
    folder: Path,
    method: str = "remix",
    seed: int = 0,
    *,
    learned: int = TASKS,
    right: int = 80,
    names: Sequence[str] = ("cat", "dog"),
    assignments: Sequence[str] = (),
    command: str = "remix run digits",
) -> Path:
    """A run of three tasks of 100 test images, of which ``learned`` were learned; finished if that is all of them."""
    folder.mkdir(parents=True)
    words = [f"data.tasks={TASKS}", "data.classes=9", *assignments]
    config = resolve("digits", method=method, seed=seed, assignments=words).to_plain()
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    matrix = AccuracyMatrix()
    events: list[dict[str, Any]] = [{"event": "start", "tasks": TASKS, "command": command, **MACHINE}]
    for task in range(1, learned + 1):
        matrix.add_row([right - 3 * i for i in reversed(range(task))], [100] * task)
        events += _task_events(task, method, seed, matrix)
        if method == "remix" and task > 1:
            (folder / "dreams").mkdir(exist_ok=True)
            images = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(task))
            save_grid(folder / "dreams" / f"task-{task}.png", [GridRow(name, images) for name in names])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if learned:
        matrix.write(folder / "matrix.csv")
    if learned == TASKS:
        summary = {
            "method": method, "data": config["data"]["name"], "seed": seed, "tasks": TASKS, "tested_on": "test",
            "metrics": matrix.summary(), "matrix": matrix.to_dict(), "minutes": {"dream": 12.0, "train": 30.0 + seed},
            "minutes_in_all": 42.0 + seed, "processor_minutes": 40.0, "peak_memory_mib": 512, "command": command,
            **MACHINE,
        }  # fmt: skip
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def _task_events(task: int, method: str, seed: int, matrix: AccuracyMatrix) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    if method == "remix" and task > 1:
        events += [
            {"event": "inversion", "task": task, "phase": phase, "number": number, "phases": 2, "step": step,
             "steps": 3, "rate": 0.1, "terms": {"features": 1.0 / step, "prior": -0.5, "loss": 2.0 / step}}
            for number, phase in enumerate(("block", "refine"), start=1) for step in (1, 2, 3)
        ]  # fmt: skip
    events.append({"event": "phase", "task": task, "phase": "dream", "seconds": 240.0, "peak_bytes": 300 * 2**20})
    events += [
        {"event": "epoch", "task": task, "stage": stage, "epoch": epoch, "epochs": 4, "rate": 0.1, "seconds": 1.0,
         "terms": {"cross-entropy": (1.0 + 0.1 * seed) / epoch, "distillation": 0.2}}
        for stage in ("network", "head") for epoch in range(1, 5)
    ]  # fmt: skip
    events.append({"event": "phase", "task": task, "phase": "train", "seconds": 600.0, "peak_bytes": 500 * 2**20})
    if method == "remix":
        layers = [{"layer": f"block.{i}:input:channels", "gain": 0.1 * (i + 1) + 0.01 * seed} for i in range(3)]
        events.append({"event": "likelihood", "task": task, "layers": layers})
    events.append(
        {"event": "task", "task": task, "accuracies": list(matrix.row()), "peak_bytes": 512 * 2**20,
         "accuracy_macro": matrix.accuracy(average="macro"), "accuracy_micro": matrix.accuracy(average="micro")}
    )  # fmt: skip
    return events
