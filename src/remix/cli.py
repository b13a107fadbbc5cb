"""The `remix` command. Each sub-command is a plain function in `remix.commands`; `command_line` makes the options.

Arguments before the ``*`` of a function are typed without their name, those after it are options; the docstring is the
help: its notes on arguments, its text, its examples.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from remix.command_line import build_parser
from remix.commands.dreams import dream, measure
from remix.commands.learning import learn
from remix.commands.lists import backbones, data, datasets, doctor, methods, presets
from remix.commands.models import audit, evaluate, export, inspect, predict
from remix.commands.reproduction import reproduce
from remix.commands.runs import compare, report, run, sweep
from remix.extensions import VARIABLE, import_extensions
from remix.support.allocator import keep_freed_memory
from remix.support.memory_errors import out_of_memory
from remix.support.text import printable

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
_GOING_ON = {"run": "the same command with --resume goes on"} | dict.fromkeys(
    ("sweep", "reproduce"), "the same command goes on"
)
_MORE_MEMORY = (
    "there is not enough memory for this; free some, raise the limit of this process (ulimit -v), or ask for less at a "
    "time (smaller images, batches or numbers of samples)"
)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; ``args`` defaults to ``sys.argv``.

    What a person can set right ends with one sentence and status 2. With REMIX_TRACEBACK set, Python's whole report is
    shown instead. Files and modules that REMIX_IMPORT names are imported first: they may register more.
    """
    if args is None:  # the process is ours alone
        _own_process()
    given = list(sys.argv[1:] if args is None else args)
    chosen = build_parser(COMMANDS).parse_args(given or ["--help"])
    name = chosen.subcommand
    if args is None and name in _TRAINING:
        keep_freed_memory()
    try:
        import_extensions(os.environ.get(VARIABLE, ""))
        COMMANDS[name](**chosen[name].as_dict())
    except Exception as error:
        short = out_of_memory(error)
        if os.environ.get("REMIX_TRACEBACK") or not (short or isinstance(error, ValueError | OSError)):
            raise
        _end(name, _MORE_MEMORY if short else str(error), 2)
    except KeyboardInterrupt:
        _end(name, "interrupted, nothing was written", 130)
    except _EndedError as end:
        saved = "; ".join(filter(None, ["no file is left half written", _GOING_ON.get(name)]))
        _end(name, f"ended by {end.signal.name}; {saved}", 128 + end.signal)


class _EndedError(SystemExit):
    """A signal that ends the process, as an exception: what is under way can clean up."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(128 + number)


def _own_process() -> None:
    """Let signals that end the process raise, and let every text be printed, with escapes where there is no letter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for ending in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, ending, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, _raise)


def _raise(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # `timeout` and others send it twice
    raise _EndedError(number)


def _end(command: str, reason: str, status: int) -> NoReturn:
    with suppress(OSError):  # a terminal that is gone
        print("\n".join(map(printable, f"remix {command}: {reason}".splitlines())), file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
