"""`remix run`."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, NoReturn

from remix.cli.output import accuracy_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from remix.data import TaskStream
    from remix.experiments.config import RunConfig
    from remix.experiments.run_directory import RunDirectory

__all__ = ["run"]

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


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
        method: Method to learn with (see: remix methods); the preset's by default.
        seed: Number from which everything random is drawn; 0 by default.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.
        out: The folder of the run; runs/PRESET-METHOD-seedS by default.
        resume: Go on with the run in that folder.
        set: Other settings, such as data.tasks=2 settings.first.epochs=10; config.yaml of a run shows all of them.
        dry_run: Only print what would be done: tasks, stages, epochs, images.
        validation: Test on a tenth of the training images instead of the test images, for choosing settings: the same
            images with every seed, others with --set data.validation_seed=1.
        accelerator: Where to compute: auto (a GPU if there is one), cpu, cuda or mps; cpu unless the preset says else.
        devices: Processes that share every batch, each on a device of its own; 1 unless the preset says else.
        precision: Numbers that the network computes with: 32 bits, or bf16-mixed; 32 unless the preset says else.
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
    from pathlib import Path

    from rich.console import Console

    from remix.experiments.config import resolve
    from remix.experiments.events import TensorBoardLog, read_events, require_tensorboard
    from remix.experiments.plan import create_team, load_tasks
    from remix.experiments.run import execute
    from remix.experiments.run_directory import RunDirectory
    from remix.inversion import InversionStoppedError
    from remix.learning.engine import InterruptedInversion
    from remix.learning.trainer import TrainingStoppedError
    from remix.support.display import Display, say
    from remix.support.settings import SettingError

    config = resolve(
        preset,
        method=method,
        seed=seed,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        validation=validation,
        assignments=set or (),
    )
    if test_every < 0:
        raise SettingError(f"--test-every must be a number of epochs, or 0 for never, got {test_every}")
    if log is not None:
        if log != "tensorboard":
            raise SettingError(f"--log must be tensorboard, got {log!r}; metrics.jsonl is always written")
        require_tensorboard()
    console = Console()
    if dry_run:
        _show_plan(config, data, console)
        return
    directory = RunDirectory(out or Path("runs") / f"{Path(preset).stem}-{config.method}-seed{config.seed}")
    directory.check(config, resume)
    if directory.finished:
        if log is not None:
            with TensorBoardLog(directory.tensorboard, directory.dreams) as told:
                for event in read_events(directory.metrics).events:
                    told(event)
        say(console, f"{directory.path} is finished; here is its result")
        _show_result(directory, console)
        return
    stream = load_tasks(config.data, data)
    team = create_team(config)
    if not team.first:
        console = Console(quiet=True)
    _note_on_data(config, stream, console)
    again = f"remix run {shlex.quote(preset)} ... --out {shlex.quote(str(directory.path))} --resume"
    logged = log is not None and team.first
    try:
        with TensorBoardLog(directory.tensorboard, directory.dreams) if logged else nullcontext() as told:
            execute(config, stream, directory, team=team, display=Display(console), log=told, test_every=test_every)
    except KeyboardInterrupt as stop:
        large = isinstance(stop, InterruptedInversion) and not stop.saved
        lost = "the part of the dreams under way (too large to save half-way)" if large else "the last minute or epoch"
        _stop(console, f"interrupted; all but {lost} is saved. Go on with: {again}", 130)
    except (TrainingStoppedError, InversionStoppedError) as error:
        _stop(console, f"stopped: {error}. What was learned before is in {directory.path}", 1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno is None:
            raise
        full = error.errno in _FULL
        reason, remedy = ("the disk is full", "make room") if full else (os.strerror(error.errno), "set that right")
        where = f" ({error.filename})" if error.filename else ""
        saved = "What was saved before is whole" if directory.config.is_file() else "Nothing was saved"
        _stop(console, f"stopped: {reason}{where}. {saved}; {remedy} and go on with: {again}", 1)
    if team.first:
        _show_result(directory, console)


def _stop(console: Console, text: str, status: int) -> NoReturn:
    from remix.support.display import say

    say(console, f"remix run: {text}", style="red")
    sys.exit(status)


def _note_on_data(config: RunConfig, stream: TaskStream, console: Console) -> None:
    """Say if a data set has other numbers of images than the official one: a file may be cut."""
    from remix.data.registry import list_datasets
    from remix.support.display import say

    name = config.data.name
    entry = next((entry for entry in list_datasets() if entry.name == name), None)
    official = None if entry is None else entry.counts
    found = len(stream.splits.train), len(stream.splits.test)
    here = stream.splits.here
    if entry is not None and entry.classes_here and len(here) < len(stream.splits.classes):
        say(console, f"note: a part of {name} is here, {len(here)} of {len(stream.splits.classes)} classes")
    elif official is not None and not config.data.validation and found != official:
        say(
            console,
            f"note: {name} has {found[0]:,} training and {found[1]:,} test images here, officially {official[0]:,} and "
            f"{official[1]:,}; remix data prepare {name} checks it",
        )


def _show_plan(config: RunConfig, root: str | None, console: Console) -> None:
    """What would be done; raises ValueError if it cannot be."""
    from rich.markup import escape
    from rich.table import Table

    from remix.data import MissingData
    from remix.experiments.plan import check_run, load_tasks, plan_run
    from remix.support.display import say

    reason = ""
    try:
        stream = load_tasks(config.data, root)
    except MissingData as error:
        stream, reason = None, str(error)
    check_run(config, stream)
    if stream is not None:
        _note_on_data(config, stream, console)
    plan = plan_run(config, stream)
    data, network = config.data, config.network
    options = "".join(f", {key}={value}" for key, value in network.options.items())
    part = f", tested on {data.tested_on}" if data.validation else ""
    about = Table(show_header=False, box=None, pad_edge=False)
    about.add_column(style="bold")
    about.add_column(overflow="fold")
    about.add_row("data", escape(f"{data.name}, {len(plan.tasks)} tasks, order {data.order}{part}"))
    about.add_row("network", f"{network.backbone}{options}, batches of {config.batch_size}")
    setting = getattr(config.settings, "setting", None)
    about.add_row("method", f"{config.method}{f' (setting {setting})' if setting else ''}, seed {config.seed}")
    about.add_row("device", f"{config.accelerator}, {config.devices} process(es), precision {config.precision}")
    console.print(about)
    table = Table()
    for heading in ("task", "classes", "train", "test", "pseudo", "stages (epochs)", "images through the network"):
        table.add_column(heading, justify="left" if "s (" in heading or heading == "classes" else "right")
    for number, task in enumerate(plan.tasks, start=1):
        stages = ", ".join(f"{stage.name} ({stage.epochs})" for stage in task.stages)
        cells = [f"{task.train:,}", f"{task.test:,}", f"{task.pseudo:,}" if task.pseudo else "", stages]
        table.add_row(str(number), escape(_short(task.classes)), *cells, f"{task.work:,}")
    table.add_section()
    table.add_row("all", "", "", "", "", "", f"{plan.work:,}")
    console.print(table)
    if not plan.known:
        say(console, f"this is planned with the official numbers of {data.name}: {reason}", style="yellow")


def _short(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)})" if len(names) > most else "")


def _show_result(directory: RunDirectory, console: Console) -> None:
    from remix.support.display import say

    summary = directory.read_summary()
    console.print(accuracy_table(summary["method"], summary["matrix"]))
    parts = [f"{name} {value:.1f}" for name, value in summary["minutes"].items() if value >= 0.05]
    parts.append(f"{summary['processor_minutes']:.1f} of the processor")
    spent = f"{summary['minutes_in_all']:.1f} minutes ({', '.join(parts)})"
    say(console, f"{spent}, peak memory {summary['peak_memory_mib']:,} MiB")
    files = {"result": directory.summary, "model": directory.model}
    last = directory.dreams / f"task-{summary['tasks']}.png"
    if last.is_file():
        files["dreams"] = last
    for label, path in files.items():
        say(console, f"{label:<8} {path}")
