"""`remix run`."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from remix.cli.output import accuracy_table, show

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

    from remix.experiments.run_directory import RunDirectory

__all__ = ["run"]

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


def run(
    preset: str,
    *,
    method: str | None = None,
    tasks: int | None = None,
    seed: int | None = None,
    data: str | None = None,
    out: str | None = None,
    resume: bool = False,
    set: list[str] | None = None,
    show_settings: bool = False,
    save_preset: str | None = None,
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
        preset: One of those that remix presets lists, a file NAME.yaml of the same form, or a folder of your images:
            one sub-folder per class, below train and test (or val) if you have divided them. For a folder, image size,
            network and epochs are chosen by what is in it, and said.
        method: Method to learn with (see: remix methods); the preset's by default, else lda,
            an exact head on what the network learned in the first task.
        tasks: In how many tasks the classes arrive; the preset's by default, of a folder up to five.
        seed: Number from which everything random is drawn; 0 by default.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.
        out: The folder of the run; runs/PRESET-METHOD-seedS by default.
        resume: Go on with the run in that folder.
        set: Other settings, such as data.first=4 settings.first.epochs=10; --show-settings shows all of them, and
            remix methods NAME says what they mean.
        show_settings: Only print every setting as it would be, as YAML.
        save_preset: Only write a preset of this run, NAME.yaml, to be edited and given to remix run; other methods can
            be run with it as well.
        dry_run: Only print what would be done (tasks, stages, epochs, images), and about how long it would take.
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
        remix run photos/ --tasks 5 --method remix
        remix run photos/ --save-preset mine.yaml
        remix run cifar100-mini --data ~/data --out runs/mini --resume
        remix run digits --log tensorboard
        remix run digits --test-every 5
        remix run cifar100-10 --tasks 20 --dry-run --method remix --set settings.samples=1000
    """
    from pathlib import Path

    import yaml
    from rich.console import Console

    from remix.cli.run_plan import note_on_data, show_choices, show_plan
    from remix.experiments.config import as_preset, read_preset, resolve
    from remix.experiments.events import TensorBoardLog, read_events, require_tensorboard
    from remix.experiments.plan import create_team, load_tasks
    from remix.experiments.run import execute
    from remix.experiments.run_directory import RunDirectory
    from remix.experiments.sweep import run_name
    from remix.inversion import InversionStoppedError
    from remix.learning.engine import InterruptedInversion
    from remix.learning.trainer import TrainingStoppedError
    from remix.support.display import Display, say
    from remix.support.settings import SettingError

    config = resolve(
        preset,
        method=method,
        tasks=tasks,
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
    if show_settings:
        show(yaml.safe_dump(config.to_plain(), sort_keys=False).rstrip())
        return
    show_choices(preset, config, console)
    if save_preset is not None:
        _save_preset(Path(save_preset), as_preset(read_preset(preset, config.data.tasks), config))
        say(console, f"{save_preset} has it; go on with: remix run {shlex.quote(save_preset)}")
        return
    if dry_run:
        show_plan(config, data, console)
        return
    directory = RunDirectory(out or Path("runs") / run_name(preset, config.method, [], config.seed))
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
    note_on_data(config, stream, console)
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


def _save_preset(path: Path, values: Mapping[str, Any]) -> None:
    """Write a new file of settings. Raises ValueError for a name that is taken, or that is not that of a preset."""
    import yaml

    from remix.support.files import write_text
    from remix.support.text import printable

    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"--save-preset takes a name such as mine.yaml, got {printable(path)}")
    if path.exists():
        raise ValueError(f"{printable(path)} exists already: give --save-preset another name, or remove it")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {printable(path.parent)}: make it first")
    write_text(path, yaml.safe_dump(values, sort_keys=False))


def _stop(console: Console, text: str, status: int) -> NoReturn:
    from remix.support.display import say

    say(console, f"remix run: {text}", style="red")
    sys.exit(status)


def _show_result(directory: RunDirectory, console: Console) -> None:
    from remix.support.display import say

    summary = directory.read_summary()
    console.print(accuracy_table(summary["method"], summary["matrix"], console.width))
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
