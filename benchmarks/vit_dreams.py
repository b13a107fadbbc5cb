"""Which rates and weights of layer-wise inversion reach the features of a vision transformer in few steps?

    python -m benchmarks.vit_dreams --data DIR --out docs/bench/vit_dreams.json

A ViT-B/16 with adapters learns the first task of `cub-vit-mini`, of training images alone. Then two features of each
class are inverted with several settings, without any test image. Read of the synthetic images: how far their features
are from the targets (0: there, 1: no nearer than the mean target), how many the network takes for their class, and how
many lie nearest to the mean of their class in the same network without adapters, which the inversion does not see.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.experiments.config import resolve
from remix.experiments.plan import check_run, create_run_head, load_tasks, method_of
from remix.inversion import LayerwiseSettings, Progress, Schedule, invert_layerwise
from remix.learning.engine import Engine
from remix.methods.remix import Remix
from remix.networks import Backbone, Classifier
from remix.networks.probe import evaluating
from remix.support.files import write_text

WORDS = ("data.images=16", "data.validation=0.5", "settings.samples_per_task=8")


@dataclass(frozen=True)
class Trial:
    """Steps and rate of a block, of the refinement; weight of statistics (that of the Laplace term is a twentieth)."""

    block: tuple[int, float]
    refine: tuple[int, float]
    weight: float
    period: int | None = None

    def of(self, settings: LayerwiseSettings) -> LayerwiseSettings:
        """The settings of a preset with these."""
        return replace(
            settings,
            block=Schedule(*self.block),
            refine=Schedule(*self.refine, cosine_period=self.period),
            statistics=self.weight,
            input=self.weight,
            prior=replace(settings.prior, weight=self.weight / 20),
            batch=64,
            micro_batch=None,
        )


TRIALS = (
    Trial((4, 0.1), (8, 0.02), 0.2),
    Trial((4, 0.5), (8, 0.2), 0.2),
    Trial((1, 0.5), (11, 0.2), 0.2),
    Trial((1, 0.5), (11, 0.2), 0.02),
    Trial((1, 0.5), (11, 0.5), 0.02),
    Trial((8, 0.5), (4, 0.2), 0.02),
    Trial((1, 0.5), (11, 0.1), 0.02),
    Trial((1, 0.5), (24, 0.1), 0.02),
    Trial((1, 0.5), (11, 0.1), 0.002),
    Trial((1, 0.5), (24, 0.2), 0.002, 26),
)


def learned(data: str, preset: str) -> tuple[Engine, Backbone, Tensor]:
    """After the first task; the network as it began; there, the mean feature of each class."""
    config = resolve(preset, method="remix", assignments=WORDS)
    stream = load_tasks(config.data, data)
    network = check_run(config, stream)
    bare = copy.deepcopy(network.backbone)
    student = Classifier(network.backbone, create_run_head(config, network.backbone))
    normalisation = network.preprocessing.normalisation
    method = method_of(config)
    engine = Engine(student, method, normalisation, config.augment, batch_size=config.batch_size)
    engine.learn(stream[0])
    engine.teacher = engine.frozen_student()
    with torch.no_grad(), evaluating(bare):
        parts = [(bare.pooled(*items), labels) for items, labels in engine.images(stream[0].train)]
    features, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    means = torch.stack([features[labels == label].mean(0) for label in range(len(stream[0].classes))])
    return engine, bare, means


def dreamed(engine: Engine, bare: Backbone, means: Tensor, trial: Trial) -> dict[str, Any]:
    """What one setting gives."""
    method, teacher = engine.method, engine.teacher
    assert isinstance(method, Remix)
    assert teacher is not None
    engine.generator.manual_seed(5)
    targets, values, began = method.targets(engine), dict[str, Mapping[str, float]](), time.process_time()
    generator = torch.Generator().manual_seed(0)

    def look(progress: Progress) -> None:
        values[progress.phase] = progress.step.values

    found = invert_layerwise(method.knowledge(engine), targets, generator, trial.of(method.inversion), progress=look)
    seconds, labels, wanted = time.process_time() - began, targets.labels, targets.features
    assert wanted is not None
    with torch.no_grad(), evaluating(teacher), evaluating(bare):
        items = found.images.half().float()  # as they are held
        features, others = teacher.backbone.pooled(items, method.depth), bare.pooled(items, method.depth)
        read, near = teacher.head(features).argmax(1), torch.cdist(others, means).argmin(1)
    error = (features - wanted).square().mean() / (wanted - wanted.mean(0)).square().mean()
    last = next(values[phase] for phase in values if phase.endswith("refine"))
    return {
        "block": trial.block, "refine": trial.refine, "period": trial.period, "statistics": trial.weight,
        "distance": round(float(error), 3), "read_as_meant": _percent(read == labels),
        "read_without_adapters": _percent(near == labels), "processor_seconds": round(seconds, 1),
        "terms": {name: round(value, 4) for name, value in last.items()},
    }  # fmt: skip


def _percent(right: Tensor) -> float:
    return round(100 * float(right.float().mean()), 1)


def measure(data: str, preset: str, trials: Iterable[Trial]) -> Iterable[dict[str, Any]]:
    """A row for each setting."""
    engine, bare, means = learned(data, preset)
    for trial in trials:
        yield dreamed(engine, bare, means, trial)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with CUB_200_2011, vit-b16, minilm and weights")
    parser.add_argument("--preset", default="cub-vit-mini")
    parser.add_argument("--only", help="numbers of settings from 0, separated by commas; all by default")
    parser.add_argument("--out", default="docs/bench/vit_dreams.json")
    typed = parser.parse_args()
    torch.set_num_threads(1)
    chosen = TRIALS if typed.only is None else [TRIALS[int(number)] for number in typed.only.split(",")]
    rows: list[dict[str, Any]] = []
    command = "REMIX_DATA=DIR python -m benchmarks.vit_dreams --data DIR"
    for row in measure(typed.data, typed.preset, chosen):
        rows.append(row)
        print(json.dumps(row), flush=True)
        write_text(Path(typed.out), json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
