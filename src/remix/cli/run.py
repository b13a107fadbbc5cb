"""`remix run`."""

from __future__ import annotations

import sys
from typing import Literal

__all__ = ["run"]


def run(
    preset: str,
    *,
    method: str | None = None,
    seed: int | None = None,
    data: str | None = None,
    out: str | None = None,
    resume: bool = False,
    set: list[str] | None = None,
    dry_run: bool = False,
    validation: bool = False,
    accelerator: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    devices: int | None = None,
    precision: Literal["32", "bf16-mixed"] | None = None,
    log: Literal["tensorboard"] | None = None,
    test_every: int = 0,
) -> None:
    """Learn the classes of a data set task after task with a method, without the data of the old ones.

    Leaves a folder with config.yaml, metrics.jsonl, matrix.csv, summary.json, log.txt, pictures of the dreams of every
    task, model.remix, and checkpoints: after kill -9 the same command with --resume ends with the same matrix.csv.

    Args:
        preset: One of those that remix presets lists, or a file NAME.yaml of the same form.
        method: Instead of the preset's (see: remix methods).
        seed: Of everything random; 0 by default.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.
        out: The folder of the run; runs/PRESET-METHOD-seedS by default.
        resume: Go on with the run in that folder.
        set: Other settings, such as data.tasks=2 settings.first.epochs=10; config.yaml of a run shows all of them.
        dry_run: Only print what would be done: tasks, stages, epochs, images.
        validation: Test on a tenth of the training images instead of the test images, for choosing settings: the same
            images with every seed, others with --set data.validation_seed=1.
        accelerator: auto, cpu, cuda or mps.
        devices: Number of processes.
        precision: 32 or bf16-mixed.
        log: tensorboard - write the numbers and dreams also for TensorBoard, in the folder tensorboard/ of the run
            (needs pip install 'remix-dfcil[tensorboard]'); with --resume also those of a finished run.
        test_every: Also test after every so many epochs of a stage, for curves of accuracy in the report and in
            metrics.jsonl; 0 for never. Takes time, changes no result.

    Examples:
        remix run digits
        remix run digits --method finetune --seed 1
        remix run cifar100-mini --data ~/data --out runs/mini --resume
        remix run digits --log tensorboard
        remix run digits --test-every 5
        remix run cifar100-10 --dry-run --set settings.samples=1000 data.tasks=20
    """
    from remix.experiments.run_command import RunOptions, run_command

    options = RunOptions(preset, method, seed, data, out, set or (), accelerator, devices, precision, validation)
    status = run_command(options, resume=resume, dry_run=dry_run, log=log, test_every=test_every)
    if status:
        sys.exit(status)
