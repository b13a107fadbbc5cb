"""Photographs through the command line only: 5 classes of Imagenette, then 2, then 3, without the old photographs.

    python -m benchmarks.learn_imagenette --data DIR --weights resnet34.safetensors --out FILE.json

Every step is one `remix learn`, as a user types it, with the defaults of the package, and one `remix evaluate` on the
validation photographs. Compared are remix, fine-tuning, and joint training: one step with the photographs of all
classes so far. The JSON file is written after every step, and what it holds already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STEPS = (
    ("tench", "english_springer", "cassette_player", "chain_saw", "church"),
    ("french_horn", "garbage_truck"),
    ("gas_pump", "golf_ball", "parachute"),
)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with imagenette/train and imagenette/val")
    parser.add_argument("--weights", type=Path, required=True, help="of a ResNet-34")
    parser.add_argument("--out", type=Path, default=Path("docs/bench/learn_imagenette.json"))
    parser.add_argument("--work", type=Path, default=Path("imagenette-steps"), help="folder for photographs and models")
    parser.add_argument("--each", type=int, default=100, help="photographs per class")
    parser.add_argument("--methods", default="remix,finetune,joint")
    typed = parser.parse_args()
    typed.work.mkdir(parents=True, exist_ok=True)
    for number, classes in enumerate(STEPS, start=1):
        so_far = [name for step in STEPS[:number] for name in step]
        copy(typed.data / "imagenette" / "train", typed.work / f"new{number}", classes, typed.each)
        copy(typed.data / "imagenette" / "train", typed.work / f"all{number}", so_far, typed.each)
        copy(typed.data / "imagenette" / "val", typed.work / f"val{number}", so_far, 1000)
    for method in typed.methods.split(","):
        for number in range(1, len(STEPS) + 1):
            step(method, number, typed)


def copy(source: Path, target: Path, classes: Any, each: int) -> None:
    """The first photographs of some classes."""
    for name in classes:
        (target / name).mkdir(parents=True, exist_ok=True)
        for path in sorted((source / name).iterdir())[:each]:
            if not (target / name / path.name).exists():
                shutil.copyfile(path, target / name / path.name)


def step(method: str, number: int, typed: argparse.Namespace) -> None:
    """One `remix learn` and one `remix evaluate`, unless their result is there."""
    out: Path = typed.out
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"photographs_per_class": typed.each}
    rows: list[dict[str, Any]] = found.setdefault("methods", {}).setdefault(method, [])
    model = typed.work / f"{method}{number}.remix"
    if len(rows) >= number and model.exists():
        return
    begin = ["--backbone", "resnet34", "--weights", str(typed.weights)]
    if method == "joint":
        words = [str(typed.work / f"all{number}"), *begin]
    elif number == 1:
        words = [str(typed.work / "new1"), *begin, "--method", method]
    else:
        words = [str(typed.work / f"{method}{number - 1}.remix"), str(typed.work / f"new{number}")]
    model.unlink(missing_ok=True)
    spent = run(["learn", *words, "--out", str(model)])
    shown = subprocess.run(
        [*REMIX, "evaluate", str(model), str(typed.work / f"val{number}"), "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    classes = {row["class"]: row for row in json.loads(shown.stdout)["classes"]}
    old = [name for one in STEPS[: number - 1] for name in one]
    result = {
        "classes": len(classes), "all": share(classes, list(classes)), "old": share(classes, old),
        "new": share(classes, STEPS[number - 1]), **spent, "file_bytes": model.stat().st_size,
    }  # fmt: skip
    found = json.loads(out.read_text()) if out.exists() else found  # another process may have written meanwhile
    rows = found.setdefault("methods", {}).setdefault(method, [])
    rows[number - 1 :] = [result]
    out.write_text(json.dumps(found, indent=2) + "\n")
    print(method, number, json.dumps(result), flush=True)


REMIX = [sys.executable, "-m", "remix.cli"]


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


def share(classes: dict[str, dict[str, Any]], names: Any) -> float | None:
    """Right ones among the photographs of these classes, in percent."""
    images = sum(classes[name]["images"] for name in names)
    return round(100 * sum(classes[name]["right"] for name in names) / images, 1) if images else None


if __name__ == "__main__":
    main()
