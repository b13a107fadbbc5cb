"""The `remix` command. Each sub-command is a plain function with typed arguments; jsonargparse makes the options.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import docstring_parser
from jsonargparse import ArgumentParser

from remix._version import __version__

__all__ = ["COMMANDS", "data", "datasets", "doctor", "main"]


def doctor(json: bool = False) -> None:
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


def data(action: Literal["prepare"], name: str, data: str | None = None) -> None:
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


COMMANDS: dict[str, Callable[..., None]] = {"data": data, "datasets": datasets, "doctor": doctor}


def build_parser() -> ArgumentParser:
    """The parser of `remix`, one sub-command per entry of COMMANDS."""
    parser = ArgumentParser(
        prog="remix",
        description="Teach an image classifier new classes without the data of the old ones.",
        version=__version__,
    )
    commands = parser.add_subcommands(title="commands", metavar="command", description="remix COMMAND --help says more")
    for name, function in COMMANDS.items():
        about = docstring_parser.parse(function.__doc__ or "")
        command = ArgumentParser(description=about.short_description)
        # A parameter that defaults to False is a switch: `--json`, not `--json true`.
        switches: set[str | int] = {
            key for key, p in inspect.signature(function).parameters.items() if p.default is False
        }
        command.add_function_arguments(function, as_group=False, as_positional=True, skip=switches)
        for note in about.params:
            if note.arg_name in switches:
                command.add_argument(f"--{note.arg_name}", action="store_true", help=note.description)
        commands.add_subcommand(name, command, help=about.short_description)
    return parser


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; ``args`` defaults to ``sys.argv``."""
    given = list(sys.argv[1:] if args is None else args)
    chosen = build_parser().parse_args(given or ["--help"])
    COMMANDS[chosen.subcommand](**chosen[chosen.subcommand].as_dict())


if __name__ == "__main__":
    main()
