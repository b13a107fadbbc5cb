"""The `remix` command. Each sub-command is a plain function with typed arguments; `command_line` makes the options.

Arguments before the ``*`` of a function are typed without their name, those after it are options; the docstring is the
help: its notes on arguments, its text, its examples.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from remix.command_line import build_parser
from remix.dream_commands import dream, measure
from remix.experiments.reproduce_command import reproduce
from remix.model_commands import audit, evaluate, export, inspect, predict

__all__ = ["COMMANDS", "main"]


def doctor(*, json: bool = False) -> None:
    """Versions, the Laplace kernels in use and why, threads, memory, devices, data folder.

    Args:
        json: Print one JSON object instead of a table.
    """
    from dataclasses import asdict
    from json import dumps

    from remix.doctor import examine, show

    found = examine()
    if json:
        print(dumps(asdict(found), indent=2))
    else:
        show(found)
    if found.broken:
        sys.exit(1)


def datasets() -> None:
    """The data sets that REMIX reads by name, one line each."""
    from rich.console import Console

    from remix.data.show import show_datasets

    show_datasets(Console())


def data(action: Literal["prepare"], name: str, *, data: str | None = None) -> None:
    """Find a data set, check it, count its images per class; download it if it is not there and can be fetched.

    Args:
        action: What to do: prepare.
        name: Of the data set (see: remix datasets), or a folder with one sub-folder of images per class.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.

    Examples:
        remix data prepare cifar100 --data ~/data
        remix data prepare photos/
    """
    from rich.console import Console

    from remix.data import DataError
    from remix.data.prepare import prepare
    from remix.data.show import show_splits

    console = Console()
    try:
        show_splits(prepare(name, data, console), console)
    except DataError as error:
        print(f"remix data {action}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"remix data {action}: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


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
        validation: Test on a tenth of the training images instead of the test images, for choosing settings.
        accelerator: auto, cpu, cuda or mps.
        devices: Number of processes.
        precision: 32 or bf16-mixed.

    Examples:
        remix run digits
        remix run digits --method finetune --seed 1
        remix run cifar100-mini --data ~/data --out runs/mini --resume
        remix run cifar100-10 --dry-run --set settings.samples=1000 data.tasks=20
    """
    from remix.experiments.run_command import RunOptions, run_command

    options = RunOptions(preset, method, seed, data, out, set or (), accelerator, devices, precision, validation)
    status = run_command(options, resume=resume, dry_run=dry_run)
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
        validation: Test on a tenth of the training images instead of the test images, for choosing settings.
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

    found = compare_runs(runs)
    console = Console()
    if matrices:
        show_matrices(found, console)
    formatted = format_comparison(found, format)
    print(formatted) if isinstance(formatted, str) else console.print(formatted)
    if format != "csv":
        for line in (*found.sentences(), *found.remarks):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    if matrices:
        show_files(found, console)


def methods() -> None:
    """The methods that REMIX can run, one line each."""
    from remix.methods import list_methods

    _list(list_methods())


def presets() -> None:
    """The runs that are prepared: data, tasks, network and schedules, one line each."""
    from remix.experiments.presets import list_presets

    _list(list_presets())


def _list(lines: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, about in lines.items():
        table.add_row(name, about)
    Console().print(table)


def backbones(pattern: str = "*") -> None:
    """The networks that REMIX knows by name, one line each.

    Args:
        pattern: Only names like this, such as "resnet*".
    """
    from remix.experiments.backbone_list import backbone_lines

    for line in backbone_lines(pattern):
        print(line)


COMMANDS: dict[str, Callable[..., None]] = {
    "predict": predict,
    "evaluate": evaluate,
    "inspect": inspect,
    "export": export,
    "audit": audit,
    "run": run,
    "sweep": sweep,
    "compare": compare,
    "measure": measure,
    "dream": dream,
    "reproduce": reproduce,
    "data": data,
    "datasets": datasets,
    "methods": methods,
    "presets": presets,
    "backbones": backbones,
    "doctor": doctor,
}


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; ``args`` defaults to ``sys.argv``.

    What a person can set right ends with one sentence and status 2. With REMIX_TRACEBACK set, Python's whole report is
    shown instead.
    """
    given = list(sys.argv[1:] if args is None else args)
    chosen = build_parser(COMMANDS).parse_args(given or ["--help"])
    try:
        COMMANDS[chosen.subcommand](**chosen[chosen.subcommand].as_dict())
    except (ValueError, OSError) as error:
        if os.environ.get("REMIX_TRACEBACK"):
            raise
        print(f"remix {chosen.subcommand}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"remix {chosen.subcommand}: interrupted, nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
