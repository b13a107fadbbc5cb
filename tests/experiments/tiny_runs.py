"""Runs of `remix run digits` at a scale of a second or two."""

from pathlib import Path
from typing import Any
from unittest import mock

from remix.cli.run import run
from remix.experiments.config import RunConfig, resolve
from remix.experiments.run_state import Saving

COMMON = ["data.tasks=3", "data.classes=3", "data.validation=0.8", "network.options={width: 4}", "batch_size=32"]
_INVERTED = [
    "settings.first.epochs=2",
    "settings.head.epochs=1",
    "settings.last_block.epochs=1",
    "settings.network.epochs=2",
    "settings.balance.epochs=2",
    "settings.samples=30",
    "settings.samples_per_task=20",
    "settings.selectors.epochs=2",
    "settings.inversion.block.steps=4",
    "settings.inversion.refine.steps=8",
    "settings.inversion.batch=40",
]
_PLAIN = ["settings.first.epochs=2", "settings.later.epochs=2"]
_GENERATED = [
    *_PLAIN,
    "settings.image_generator.schedule.steps=8",
    "settings.image_generator.batch=16",
    "settings.image_generator.noise=8",
]
SETTINGS = {
    "finetune": _PLAIN,
    "joint": ["settings.training.epochs=2"],
    "lwf": _PLAIN,
    "ssre": _PLAIN,
    "praka": _PLAIN,
    "drift": _PLAIN,
    "ldc": [*_PLAIN, "settings.drift.epochs=2"],
    "efcpp": [*_PLAIN, "settings.balance.epochs=2"],
    "adagauss": [*_PLAIN, "settings.adapt.epochs=2"],
    "deepinversion": _GENERATED,
    "deepinversion-noise": [*_PLAIN, "settings.samples=30", "settings.inversion.schedule.steps=4"],
    "abd": _GENERATED,
    "dcmi": [*_PLAIN, "settings.image_generator.epochs=2", "settings.width=2"],
    "rdfcil": [*_GENERATED, "settings.balance.epochs=2"],
    "pmi": _INVERTED,
    "remix": _INVERTED,
    **{name: ["settings.first.epochs=2"] for name in ("ncm", "lda", "fecam", "ranpac")},
}


def tiny(method: str, out: Path, *more: str, seed: int = 0) -> dict[str, Any]:
    """What is typed for three tasks of one digit, about 29 training images per class, a few epochs and steps."""
    words = [*COMMON, *SETTINGS[method], *more]
    return {"preset": "digits", "method": method, "seed": seed, "out": str(out), "set": words}


def config_of(typed: dict[str, Any]) -> RunConfig:
    """The run that is typed."""
    return resolve(typed["preset"], method=typed["method"], seed=typed["seed"], assignments=typed["set"])


def remix_run(typed: dict[str, Any], **options: Any) -> int:
    """The status of `remix run`."""
    try:
        run(**typed, **options)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def run_saving(typed: dict[str, Any], saving: Saving, resume: bool = False) -> int:
    """The same of a run that is saved as often as ``saving`` says."""
    with mock.patch("remix.experiments.run.Saving", return_value=saving):
        return remix_run(typed, resume=resume)
