"""Adopt a network trained on 20 classes of CIFAR-100, then add 5 and 5 classes without the data of the old ones.

    python -m benchmarks.adopt_cifar --data DIR --out docs/bench/adopt_cifar.json

The network is trained here with plain PyTorch, once, and kept beside the output (NAME-network.safetensors). Then for
each way of starting (with images that are still there, with none, and with an exact head) and for fine-tuning, the
accuracy on the official test images of the old and the new classes is written after every step.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

import remix
from remix.data import Augment, ImageDataset, Normalisation, batches, class_order, load
from remix.networks import Classifier, LinearHead, create_backbone

NORMALISATION = Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
OLD, STEPS = 20, (5, 5)


def main() -> None:
    """Run all of it and write the JSON file after every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--out", default="docs/bench/adopt_cifar.json")
    parser.add_argument("--images", type=int, default=500, help="training images per class of the first network")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--kept", type=int, default=50, help="images per class that are still there when it is adopted")
    parser.add_argument("--new", type=int, default=100, help="images per new class")
    parser.add_argument("--freeze", default=None, help="as of remix learn; by default what the package chooses")
    parser.add_argument("--validation", action="store_true", help="test on training images that nothing saw")
    parser.add_argument("--ways", default="data,none,auto,finetune")
    typed = parser.parse_args()
    out = Path(typed.out)
    splits = load("cifar100", typed.data)
    order = list(class_order("A", 100))[: OLD + sum(STEPS)]
    train, test = splits.train.relabelled(order), splits.test.relabelled(order)
    if typed.validation:
        rows = [(train.labels == label).nonzero()[:, 0] for label in range(len(order))]
        train, test = (train.select(torch.cat([row[part] for row in rows])) for part in (slice(400), slice(400, None)))
    network = trained(
        first(train, range(OLD), typed.images), typed.epochs, out.with_name(f"{out.stem}-network.safetensors")
    )
    found: dict[str, Any] = {
        "command": f"python -m benchmarks.adopt_cifar --images {typed.images} --epochs {typed.epochs} "
        f"--kept {typed.kept} --new {typed.new}",
        "old_classes": OLD, "steps": STEPS, "ways": {},
    }  # fmt: skip
    for way in typed.ways.split(","):
        found["ways"][way] = steps(way, network, train, test, typed.kept, typed.new, typed.freeze)
        out.write_text(json.dumps(found, indent=2) + "\n")
        print(way, json.dumps(found["ways"][way]), flush=True)


def first(data: ImageDataset, labels: range, each: int) -> ImageDataset:
    """The first images of every one of these classes, with these classes alone."""
    rows = torch.cat([(data.labels == label).nonzero()[:each, 0] for label in labels])
    chosen = data.select(rows)
    return ImageDataset(chosen.images, chosen.labels - labels.start, data.classes[labels.start : labels.stop])


def trained(data: ImageDataset, epochs: int, kept: Path) -> Classifier:
    """A ResNet-32 of width 8, trained as anybody would."""
    generator = torch.Generator().manual_seed(0)
    network = Classifier(create_backbone("resnet32", width=8, generator=generator), LinearHead(32, [OLD]))
    if kept.exists():
        network.load_state_dict(load_file(kept))
        return network.eval()
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for epoch in range(epochs):
        network.train()
        total = 0.0
        for images, labels in batches(data, 64, generator, NORMALISATION, Augment(4)):
            loss = cross_entropy(network(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(labels)
        schedule.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(data):.3f}", flush=True)
    save_file(network.state_dict(), kept)
    return network.eval()


def steps(
    way: str, network: Classifier, train: ImageDataset, test: ImageDataset, kept: int, new: int, freeze: str | None
) -> list[dict[str, Any]]:
    """Accuracies after adoption and after every step."""
    began = time.process_time()
    learner = remix.Learner.adopt(
        network, None if way == "none" else first(train, range(OLD), kept), classes=train.classes[:OLD],
        backbone="resnet32", options={"width": 8}, mean=NORMALISATION.mean, std=NORMALISATION.std, freeze=freeze,
        method="auto" if way == "auto" else "remix", device="cpu",
    )  # fmt: skip
    if way == "finetune":
        learner.use_method("finetune")
    rows = [row(learner, test, OLD, began)]
    end = OLD
    for size in STEPS:
        began = time.process_time()
        learner.learn(first(train, range(end, end + size), new))
        end += size
        rows.append(row(learner, test, end - size, began))
    return rows


def row(learner: remix.Learner, test: ImageDataset, old: int, began: float) -> dict[str, Any]:
    """Accuracy on all test images of the classes so far, of the old ones and of the new ones, in percent."""
    known = len(learner.classes)
    found = learner.evaluate(first(test, range(known), 100))

    def share(labels: range) -> float | None:
        images, right = (sum(part) for part in zip((0, 0), *map(found.of_class, labels), strict=True))
        return round(100 * right / images, 1) if images else None

    return {
        "classes": known, "all": share(range(known)), "old": share(range(old)), "new": share(range(old, known)),
        "processor_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
