"""Do pseudo-samples keep the spread of real ones? Under a likelihood alone they need not.

    python -m benchmarks.collapse --data DIR --out docs/bench/collapse.json

A network learns the first task of a preset; then the second task is begun with `remix` in several settings, and at
every BatchNorm input the variances of the pseudo-samples are compared with those of real images. A ratio of 1 is as it
should be, 0 is a collapse to the mean.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from remix.data import Task
from remix.experiments.config import resolve
from remix.experiments.plan import create_network, load_tasks
from remix.learning.engine import Engine
from remix.learning.items import TensorReplay
from remix.networks import Classifier, create_head
from remix.statistics import LayerMeter, batchnorm_points, run_meters
from remix.support.files import write_text

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "code": ("settings.setting=code",),
    "paper": ("settings.setting=paper",),
    "paper, KL instead of the likelihood": ("settings.setting=paper", "settings.inversion.statistics_form=kl"),
    "code, likelihood instead of the KL": ("settings.setting=code", "settings.inversion.statistics_form=nll"),
    "ours": ("settings.setting=ours",),
}


def measure(preset: str, variant: tuple[str, ...], data: str | None, seed: int) -> dict[str, float]:
    """Spread of the pseudo-samples of one setting, and how the old model reads them."""
    config = resolve(preset, method="remix", seed=seed, assignments=variant)
    stream = load_tasks(config.data, data)
    backbone = create_network(config)
    student = Classifier(backbone, create_head(config.network.head, backbone.feature_dim))
    engine = Engine(
        student, config.settings, stream.normalisation, config.augment, batch_size=config.batch_size, seed=seed
    )
    engine.learn(stream[0])
    ratios, right = _dreams(engine, stream[1])
    return {"variance_ratio": float(ratios.median()), "least": float(ratios.min()), "read_as_meant": right}


def _dreams(engine: Engine, task: Task) -> tuple[torch.Tensor, float]:
    """By layer, variances of pseudo-samples over those of real images, mean over channels; how many are read right."""
    engine.present = task.train
    engine._prepare(task)
    engine._dream()
    replay, teacher = engine.replay, engine.teacher
    assert isinstance(replay, TensorReplay)
    assert teacher is not None
    meter = LayerMeter(batchnorm_points(teacher.backbone), "channels", ())
    run_meters(teacher.backbone, replay.batches(200), [meter])
    modules = dict(teacher.backbone.named_modules())
    ratios = [
        float((layer.variance / modules[layer.point.module].running_var).mean())
        for layer in meter.statistics().values()
    ]
    right = (replay.logits.argmax(1) == replay.labels).float().mean()
    return torch.tensor(ratios), float(right)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of data sets, for CIFAR-100; without it the digits alone")
    parser.add_argument("--out", default="docs/bench/collapse.json")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for preset in ("digits", *(["cifar100-mini"] if options.data else [])):
        for name, variant in VARIANTS.items():
            rows.append({"preset": preset, "setting": name, **measure(preset, variant, options.data, options.seed)})
            print(json.dumps(rows[-1]), flush=True)
    command = "python -m benchmarks.collapse --data DIR"
    write_text(Path(options.out), json.dumps({"command": command, "seed": options.seed, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
