"""The `remix` command. Each sub-command is a plain function in `remix.commands`; `command_line` makes the options.

Arguments before the ``*`` of a function are typed without their name, those after it are options; the docstring is the
help: its notes on arguments, its text, its examples.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from remix.allocator import keep_freed_memory
from remix.command_line import build_parser
from remix.commands.dreams import dream, measure
from remix.commands.learning import learn
from remix.commands.lists import backbones, data, datasets, doctor, methods, presets
from remix.commands.models import audit, evaluate, export, inspect, predict
from remix.commands.reproduction import reproduce
from remix.commands.runs import compare, report, run, sweep
from remix.extensions import VARIABLE, import_extensions

__all__ = ["COMMANDS", "main"]


COMMANDS: dict[str, Callable[..., None]] = {
    "learn": learn,
    "predict": predict,
    "evaluate": evaluate,
    "inspect": inspect,
    "export": export,
    "audit": audit,
    "run": run,
    "sweep": sweep,
    "compare": compare,
    "report": report,
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

_TRAINING = {"learn", "run", "dream"}


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; ``args`` defaults to ``sys.argv``.

    What a person can set right ends with one sentence and status 2. With REMIX_TRACEBACK set, Python's whole report is
    shown instead. Files and modules that REMIX_IMPORT names are imported first: they may register more.
    """
    given = list(sys.argv[1:] if args is None else args)
    chosen = build_parser(COMMANDS).parse_args(given or ["--help"])
    if args is None and chosen.subcommand in _TRAINING:  # the process is ours alone
        keep_freed_memory()
    try:
        import_extensions(os.environ.get(VARIABLE, ""))
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
