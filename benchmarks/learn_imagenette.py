"""Photographs through the command line only: 5 classes of Imagenette, then 2, then 3, without the old photographs.

    python -m benchmarks.learn_imagenette --data DIR --weights resnet34.safetensors --each 30 --seeds 0,1,2

Every step is one `remix learn`, as a user types it, with the defaults of the package, and one `remix evaluate` on the
validation photographs. Compared are auto, remix, fine-tuning, and joint training: one step with the photographs of all
classes so far. A seed decides which photographs of a class are taken and everything random in learning. The JSON file
is written after every step, and what it holds already is not run again; at the end its table is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remix.experiments.paired import spread
from remix.support.files import write_text

STEPS = (
    ("tench", "english_springer", "cassette_player", "chain_saw", "church"),
    ("french_horn", "garbage_truck"),
    ("gas_pump", "golf_ball", "parachute"),
)
REMIX = [sys.executable, "-m", "remix"]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with imagenette/train and imagenette/val")
    parser.add_argument("--weights", type=Path, required=True, help="of a ResNet-34")
    parser.add_argument("--out", type=Path, default=Path("docs/bench/learn_imagenette.json"))
    parser.add_argument("--work", type=Path, default=Path("imagenette-steps"), help="folder for photographs and models")
    parser.add_argument("--each", type=int, default=30, help="photographs per class")
    parser.add_argument("--seeds", default="0", help="such as 0,1,2")
    parser.add_argument("--methods", default="auto,remix,finetune,joint")
    typed = parser.parse_args()
    for seed in map(int, typed.seeds.split(",")):
        work = typed.work / f"{typed.each}-seed{seed}"
        photographs(typed.data / "imagenette", work, typed.each, seed)
        for method in typed.methods.split(","):
            for number in range(1, len(STEPS) + 1):
                step(method, number, seed, work, typed)
    steps = json.loads(typed.out.read_text())["steps"]
    there = [costs(steps, typed.each, method) for method in ("auto", "remix")]
    print(table(steps, typed.each), *there, sep="\n\n")


def photographs(source: Path, work: Path, each: int, seed: int) -> None:
    """Folders ``new1`` to ``new3``, ``all1`` to ``all3`` and ``val1`` to ``val3``."""
    for number, classes in enumerate(STEPS, start=1):
        so_far = [name for step in STEPS[:number] for name in step]
        copy(source / "train", work / f"new{number}", classes, each, seed)
        copy(source / "train", work / f"all{number}", so_far, each, seed)
        copy(source / "val", work / f"val{number}", so_far, 1000, seed)


def copy(source: Path, target: Path, classes: Sequence[str], each: int, seed: int) -> None:
    """Some photographs of some classes, the same ones for the same seed."""
    for name in classes:
        (target / name).mkdir(parents=True, exist_ok=True)
        found = sorted((source / name).iterdir())
        for path in random.Random(f"{name} {seed}").sample(found, min(each, len(found))):
            if not (target / name / path.name).exists():
                shutil.copyfile(path, target / name / path.name)


def step(method: str, number: int, seed: int, work: Path, typed: argparse.Namespace) -> None:
    """One `remix learn` and one `remix evaluate`, unless their result is there."""
    out: Path = typed.out
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"steps": []}
    key = {"photographs": typed.each, "seed": seed, "method": method, "step": number}
    model = work / f"{method}{number}.remix"
    if any(key.items() <= row.items() for row in found["steps"]) and model.exists():
        return
    begin = ["--backbone", "resnet34", "--weights", str(typed.weights)]
    if method == "joint":
        words = [str(work / f"all{number}"), *begin, "--method", "remix"]
    elif number == 1:
        words = [str(work / "new1"), *begin, "--method", method]
    else:
        words = [str(work / f"{method}{number - 1}.remix"), str(work / f"new{number}")]
    spent = run(["learn", *words, "--seed", str(seed), "--out", str(model), "--overwrite"])
    shown = subprocess.run(
        [*REMIX, "evaluate", str(model), str(work / f"val{number}"), "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    classes = {row["class"]: row for row in json.loads(shown.stdout)["classes"]}
    old = [name for one in STEPS[: number - 1] for name in one]
    result = {
        **key, "classes": len(classes), "all": share(classes, list(classes)), "old": share(classes, old),
        "new": share(classes, STEPS[number - 1]), **spent, "file_bytes": model.stat().st_size,
    }  # fmt: skip
    found = json.loads(out.read_text()) if out.exists() else found  # another process may have written meanwhile
    rows = [row for row in found["steps"] if not key.items() <= row.items()]
    found["steps"] = sorted(
        [*rows, result], key=lambda row: (row["photographs"], row["method"], row["seed"], row["step"])
    )
    write_text(out, json.dumps(found, indent=1) + "\n")
    print(json.dumps(result), flush=True)


def run(words: list[str]) -> dict[str, Any]:
    """Run a command to its end: seconds of the wall and of the processor, and the most memory it had."""
    began = time.monotonic()
    process = subprocess.Popen([*REMIX, *words])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"remix {' '.join(words)} ended with status {os.waitstatus_to_exitcode(status)}")
    return {
        "command": f"remix {' '.join(Path(word).name if '/' in word else word for word in words)}",
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_memory_mib": usage.ru_maxrss >> 10,
    }


def share(classes: dict[str, dict[str, Any]], names: Sequence[str]) -> float | None:
    """Right ones among the photographs of these classes, in percent."""
    images = sum(classes[name]["images"] for name in names)
    return 100 * sum(classes[name]["right"] for name in names) / images if images else None


def table(steps: Sequence[dict[str, Any]], photographs: int) -> str:
    """Markdown: accuracies after every step with so many photographs per class, mean ± deviation over seeds."""
    lines = [
        "| after step | classes | auto: all (old / new) | remix: all (old / new) | fine-tuning: all (old / new) "
        "| joint training: all |",
        "|---|---|---|---|---|---|",
    ]
    for number in range(1, len(STEPS) + 1):
        cells = [str(number), str(sum(len(step) for step in STEPS[:number]))]
        for method in ("auto", "remix", "finetune", "joint"):
            rows = [
                row
                for row in steps
                if (row["photographs"], row["method"], row["step"]) == (photographs, method, number)
            ]
            parts = f" ({_mean(rows, 'old', False)} / {_mean(rows, 'new', False)})"
            cells.append(_mean(rows, "all") + (parts if number > 1 and method != "joint" else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def costs(steps: Sequence[dict[str, Any]], photographs: int, method: str) -> str:
    """What the steps of a method took, in a sentence."""
    rows = [row for row in steps if row["photographs"] == photographs and row["method"] == method]
    seconds = [
        f"{spread([row['processor_seconds'] for row in rows if row['step'] == number]).mean:.0f}"
        for number in range(1, len(STEPS) + 1)
    ]
    peak = max(row["peak_memory_mib"] for row in rows)
    return f"processor seconds of the steps of {method}: {', '.join(seconds)}; most memory: {peak:,} MiB"


def _mean(rows: Sequence[dict[str, Any]], name: str, deviation: bool = True) -> str:
    values = [row[name] for row in rows if row[name] is not None]
    if not values:
        return "-"
    found = spread(values)
    return f"{found.mean:.1f}" + (f" ± {found.std:.1f}" if deviation and found.std is not None else "")


if __name__ == "__main__":
    main()
