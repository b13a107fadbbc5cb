"""The sub-commands of `remix` about runs; see `remix.cli` for how such functions are written."""

from __future__ import annotations

import sys
from typing import Literal

__all__ = ["compare", "report", "run", "sweep"]


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


def sweep(
    preset: str,
    *,
    set: list[str] | None = None,
    seeds: str = "0",
    jobs: int = 1,
    data: str | None = None,
    out: str = "runs",
    validation: bool = False,
    cluster: bool = False,
    slurm: list[str] | None = None,
    dry_run: bool = False,
) -> None:
    """Many runs: every combination of settings and seeds, several at a time; then a comparison.

    Finished runs are kept, unfinished ones go on, a run that crashed is tried once more: the same command can be typed
    again at any time, also with more seeds.

    Args:
        preset: As of remix run.
        set: Settings as of remix run, with one value or several: method=pmi,remix settings.samples=200,400.
        seeds: Of every combination, such as 0-4 or 0,2,7.
        jobs: Runs at a time; the processors are shared between them.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.
        out: The folder in which every run gets its own.
        validation: Test on a tenth of the training images instead of the test images, for choosing settings: the same
            images with every seed, others with --set data.validation_seed=1.
        cluster: Submit the runs to a Slurm cluster (needs pip install 'remix-dfcil[slurm]').
        slurm: Options for it, as submitit names them: timeout_min=600 slurm_partition=gpu gpus_per_node=1.
        dry_run: Only print the runs.

    Examples:
        remix sweep digits --set method=finetune,remix --seeds 0-4 --jobs 2
        remix sweep cifar100-mini --data ~/data --set settings.inversion.prior.weight=0.1,0.5 --validation
        remix sweep cifar100-10 --seeds 1-5 --jobs 5 --cluster --slurm timeout_min=1440 gpus_per_node=1
    """
    from remix.experiments.sweep_command import sweep_command

    status = sweep_command(
        preset,
        set or (),
        seeds,
        jobs,
        out,
        data,
        validation=validation,
        cluster=cluster,
        slurm=slurm or (),
        dry_run=dry_run,
    )
    if status:
        sys.exit(status)


def compare(
    runs: list[str], *, format: Literal["table", "markdown", "csv", "latex"] = "table", matrices: bool = False
) -> None:
    """Finished runs side by side: mean and standard deviation over seeds, differences over common seeds.

    Args:
        runs: Folders of runs, or folders that hold some.
        format: table, markdown, csv (one line per run) or latex.
        matrices: Show the accuracy matrices, side by side, and name the files to open.

    Examples:
        remix compare runs/digits-*
        remix compare runs --format markdown
    """
    from rich.console import Console

    from remix.experiments.compare import compare_runs, format_comparison, show_files, show_matrices
    from remix.support.display import say

    found = compare_runs(runs)
    console = Console()
    if matrices:
        show_matrices(found, console)
    formatted = format_comparison(found, format)
    print(formatted) if isinstance(formatted, str) else console.print(formatted)
    if format != "csv":
        begin = {"latex": "% ", "markdown": "\n"}.get(format, "")
        for line in (*found.sentences(), *found.remarks):
            print(begin, end="")
            say(console, line)
    if matrices:
        show_files(found, console)


def report(runs: list[str], *, out: str, data: str | None = None) -> None:
    """One page about runs, to open in a browser or to send to somebody: numbers, curves, dreams, settings.

    The page needs no network and no other file. Runs that are not finished are shown as far as they came. Seeds of one
    method are shown as mean and band; runs of different data are kept apart.

    Args:
        runs: Folders of runs, or folders that hold some.
        out: The page to write, such as report.html.
        data: The folder that data sets are kept in: real images are shown beside the dreams. Without it only those of
            data sets that come with REMIX are.

    Examples:
        remix report runs/digits-remix-seed0 --out report.html
        remix report runs --out report.html
        remix report runs/cifar100-mini-* --data ~/data --out report.html
    """
    from remix.report import report_command

    report_command(runs, out, data)
