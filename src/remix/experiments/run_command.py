"""What `remix run` does."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from remix.data import MissingData, TaskStream, load
from remix.experiments.metrics_file import read_events
from remix.experiments.presets import read_preset
from remix.experiments.run import execute
from remix.experiments.run_checks import check_run, note_on_data
from remix.experiments.run_config import DataConfig, RunConfig, build_config, parse_assignments
from remix.experiments.run_directory import RunDirectory
from remix.experiments.run_plan import plan_run, show_plan
from remix.experiments.run_state import Saving
from remix.experiments.run_tables import result_table
from remix.experiments.run_team import create_team
from remix.experiments.tensorboard_log import TensorBoardLog, require_tensorboard
from remix.inversion import InversionStoppedError
from remix.learning.learner import InterruptedInversion
from remix.learning.metrics import AccuracyMatrix
from remix.learning.trainer import TrainingStoppedError
from remix.support.display import say
from remix.support.settings import SettingError
from remix.support.text import shown

__all__ = ["RunOptions", "load_stream", "load_tasks", "resolve", "run_command"]

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


@dataclass(frozen=True)
class RunOptions:
    """What was typed.

    Attributes:
        preset: name of a preset, or a YAML file.
        method: instead of the preset's.
        seed: the same.
        data: folder of the data sets.
        out: folder of the run; named after preset, method and seed by default.
        assignments: words of ``--set``.
        accelerator, devices, precision: instead of the preset's.
        validation: whether a tenth of the training images stands in for the test images.

    """

    preset: str
    method: str | None = None
    seed: int | None = None
    data: str | None = None
    out: str | None = None
    assignments: Sequence[str] = ()
    accelerator: str | None = None
    devices: int | None = None
    precision: str | None = None
    validation: bool = False


def resolve(options: RunOptions) -> RunConfig:
    """The run that was asked for: preset, then method, then options, then ``--set``. Raises SettingError."""
    chosen: dict[str, Any] = {
        "method": options.method,
        "seed": options.seed,
        "accelerator": options.accelerator,
        "devices": options.devices,
        "precision": options.precision,
        "data.validation": 0.1 if options.validation else None,
    }
    typed = {key: value for key, value in chosen.items() if value is not None}
    return build_config(read_preset(options.preset), assignments=typed | parse_assignments(options.assignments))


def load_stream(config: RunConfig, root: str | None) -> TaskStream:
    """The tasks of a run. Raises DataError."""
    return load_tasks(config.data, root)


def load_tasks(data: DataConfig, root: str | None) -> TaskStream:
    """The tasks that a configuration of data describes. Raises DataError, SettingError."""
    try:
        splits = load(data.name, root, **data.options)
    except TypeError as error:
        if not data.options:
            raise
        raise SettingError(f"data.options holds a value of the wrong kind: {shown(data.options)}") from error
    stream = TaskStream(splits, data.tasks, data.order, data.first, data.classes)
    return stream.with_validation(data.validation, data.validation_seed) if data.validation else stream


def run_command(
    options: RunOptions,
    *,
    resume: bool = False,
    dry_run: bool = False,
    console: Console | None = None,
    saving: Saving | None = None,
    log: str | None = None,
    test_every: int = 0,
) -> int:
    """Plan, run or go on with a run, and show its result.

    Args:
        options: what was typed.
        resume: go on with the run in its folder.
        dry_run: only show the plan.
        console: where to show things.
        saving: how often the run is saved.
        log: ``"tensorboard"`` to write the numbers for TensorBoard too, also those of a run that is finished.
        test_every: test after every so many epochs, besides after every task; 0 for never.

    Returns:
        the status of the command: 0; 1 if the run was stopped by something that happened (a loss that is not finite, a
        full disk), which was said; 130 after Ctrl-C.

    Raises:
        ValueError: (SettingError, DataError, RunDirectoryError) for what the person can set right; nothing was changed.

    """
    console = console or Console()
    config = resolve(options)
    if test_every < 0:
        raise SettingError(f"--test-every must be a number of epochs, or 0 for never, got {test_every}")
    if log is not None:
        _check_log(log)
    if dry_run:
        planned = _stream_if_there(config, options.data)
        check_run(config, planned)
        if planned is not None:
            _note(config, planned, console)
        show_plan(config, plan_run(config, planned), console)
        return 0
    name = Path(options.preset).stem
    directory = RunDirectory(options.out or Path("runs") / f"{name}-{config.method}-seed{config.seed}")
    directory.check(config, resume)
    if directory.finished:
        if log is not None:
            _log_again(directory)
        say(console, f"{directory.path} is finished; here is its result")
        _show_result(directory, console)
        return 0
    stream = load_stream(config, options.data)
    team = create_team(config)
    if not team.first:
        console = Console(quiet=True)
    _note(config, stream, console)
    again = f"remix run {shlex.quote(options.preset)} ... --out {shlex.quote(str(directory.path))} --resume"
    try:
        with _log(log, directory, team.first) as told:
            execute(
                config, stream, directory, team=team, console=console, saving=saving, log=told, test_every=test_every
            )
    except KeyboardInterrupt as stop:
        large = isinstance(stop, InterruptedInversion) and not stop.saved
        lost = "the part of the dreams under way (too large to save half-way)" if large else "the last minute or epoch"
        return _stopped(console, f"interrupted; all but {lost} is saved. Go on with: {again}", 130)
    except (TrainingStoppedError, InversionStoppedError) as error:
        return _stopped(console, f"stopped: {error}. What was learned before is in {directory.path}", 1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno is None:
            raise
        full = error.errno in _FULL
        reason, remedy = ("the disk is full", "make room") if full else (os.strerror(error.errno), "set that right")
        where = f" ({error.filename})" if error.filename else ""
        saved = "What was saved before is whole" if directory.config.is_file() else "Nothing was saved"
        return _stopped(console, f"stopped: {reason}{where}. {saved}; {remedy} and go on with: {again}", 1)
    if team.first:
        _show_result(directory, console)
    return 0


def _note(config: RunConfig, stream: TaskStream, console: Console) -> None:
    note = note_on_data(config, stream)
    if note is not None:
        say(console, note)


def _check_log(log: str) -> None:
    if log != "tensorboard":
        raise SettingError(f"--log must be tensorboard, got {log!r}; metrics.jsonl is always written")
    require_tensorboard()


def _log(log: str | None, directory: RunDirectory, first: bool) -> AbstractContextManager[TensorBoardLog | None]:
    return TensorBoardLog(directory.tensorboard, directory.dreams) if log is not None and first else nullcontext()


def _log_again(directory: RunDirectory) -> None:
    with TensorBoardLog(directory.tensorboard, directory.dreams) as told:
        for event in read_events(directory.metrics).events:
            told(event)


def _stream_if_there(config: RunConfig, root: str | None) -> TaskStream | None:
    try:
        return load_stream(config, root)
    except MissingData:
        return None


def _stopped(console: Console, text: str, status: int) -> int:
    say(console, f"remix run: {text}", style="red")
    return status


def _show_result(directory: RunDirectory, console: Console) -> None:
    summary = directory.read_summary()
    console.print(result_table(summary["method"], AccuracyMatrix.from_dict(summary["matrix"])))
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
