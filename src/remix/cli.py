"""The `remix` command. Each sub-command is a plain function with typed arguments; jsonargparse makes the options.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence

import docstring_parser
from jsonargparse import ArgumentParser

from remix._version import __version__

__all__ = ["COMMANDS", "doctor", "main"]


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


COMMANDS: dict[str, Callable[..., None]] = {"doctor": doctor}


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
        command.add_function_arguments(function, as_group=False, skip=switches)
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
