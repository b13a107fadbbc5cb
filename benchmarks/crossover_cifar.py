"""Exact heads against training: 5 classes, then 5 more, of a network with weights or without.

    python -m benchmarks.crossover_cifar DATA --starts cifar10,scratch --images 25,100 --seeds 0,1

"cifar10" is a ResNet-20 with weights of CIFAR-10 on CIFAR-100, "far" the same on the digits that come with the package;
"scratch" is one of half the width without weights on CIFAR-100, "digits" a ConvNet-8 without weights on the digits.
Without weights lda is solved on what the first five classes taught the network. Every step is a step of `remix.Learner`
with the defaults of the package. A seed draws classes and images, and is that of everything random in learning.
Accuracy on the test images of the ten classes after the second step. What the JSON file holds is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import remix
from benchmarks.exact_heads import shown
from remix.data import ImageDataset, Splits, load
from remix.experiments.paired import spread
from remix.support.files import write_text
from remix.support.text import as_markdown

STEPS = (5, 5)
WEIGHTS = "weights/cifar10_resnet20.safetensors"
METHODS = ("auto", "lda", "drift", "remix", "finetune")


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with cifar-100-binary and weights")
    parser.add_argument("--starts", default="cifar10,scratch")
    parser.add_argument("--images", default="25,100", help="per class")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--out", type=Path, default=Path("docs/bench/crossover_cifar.json"))
    typed = parser.parse_args()
    for seed in map(int, typed.seeds.split(",")):
        for start in typed.starts.split(","):
            splits = load("digits") if start in ("digits", "far") else load("cifar100", typed.data)
            for images in map(int, typed.images.split(",")):
                for method in typed.methods.split(","):
                    key = {"start": start, "images": images, "method": method, "seed": seed}
                    if not any(key.items() <= row.items() for row in rows_of(typed.out)):
                        row = key | learned(key, splits, typed.data / WEIGHTS)
                        write_text(typed.out, json.dumps({"rows": [*rows_of(typed.out), row]}, indent=1) + "\n")
                        print(json.dumps(row), flush=True)
    print(table(rows_of(typed.out)))


def learned(key: dict[str, Any], splits: Splits, weights: Path) -> dict[str, Any]:
    """Two steps, and what they gave and took."""
    order = torch.randperm(len(splits.train.classes), generator=torch.Generator().manual_seed(key["seed"])).tolist()
    start = {
        "cifar10": {"backbone": "resnet20", "weights": weights},
        "far": {"backbone": "resnet20", "weights": weights},
        "scratch": {"backbone": "resnet20", "options": {"width": 8}},
        "digits": {"backbone": "convnet8"},
    }[key["start"]]
    learner = remix.Learner(method=key["method"], device="cpu", seed=key["seed"], **start)
    spent, known, notes = [], 0, []
    for count in STEPS:
        began = time.process_time()
        data = first(splits.train, order[known : known + count], key["images"])
        notes += learner.learn((data.images, data.labels), classes=data.classes).notes
        spent.append(round(time.process_time() - began, 1))
        known += count
    tested = first(splits.test, order[:known], 100)
    names = learner.predict(tested.images, top=1).names
    pairs = zip(names, tested.labels, strict=True)
    right = torch.tensor([name[0] == tested.classes[label] for name, label in pairs]).double()
    old = torch.isin(tested.labels, torch.tensor(order[: STEPS[0]]))
    shares = {name: 100 * float(part.mean()) for name, part in
              (("all", right), ("old", right[old]), ("new", right[~old]))}  # fmt: skip
    return {**shares, "processor_seconds": spent, "notes": notes}


def first(data: ImageDataset, labels: Sequence[int], each: int) -> ImageDataset:
    """The first images of every one of these classes."""
    return data.select(torch.cat([(data.labels == label).nonzero()[:each, 0] for label in labels]))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: accuracy on all ten classes, of the old and new ones, and processor seconds of the steps."""
    cells = []
    for start, images, method in dict.fromkeys((row["start"], row["images"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["start"], row["images"], row["method"]) == (start, images, method)]
        parts = [spread([row[part] for row in mine]).mean for part in ("old", "new")]
        seconds = [spread([row["processor_seconds"][step] for row in mine]).mean for step in range(len(STEPS))]
        cells.append([
            start, str(images), method, shown([row["all"] for row in mine]),
            f"{parts[0]:.1f} / {parts[1]:.1f}", ", ".join(f"{one:.0f}" for one in seconds),
        ])  # fmt: skip
    return as_markdown(["start", "images", "method", "all", "old / new", "processor seconds"], cells, left=3)


def rows_of(out: Path) -> list[dict[str, Any]]:
    """What the file holds."""
    found: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if out.exists() else []
    return found


if __name__ == "__main__":
    main()
