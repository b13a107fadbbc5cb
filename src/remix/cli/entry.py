"""From words to a sub-command. Each is a plain function in a file of its own; `parser` makes the options.

Arguments before the ``*`` of a function are typed without their name, those after it are options; the docstring is the
help: its notes on arguments, its text, its examples.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from remix.cli.audit import audit
from remix.cli.classes import classes
from remix.cli.compare import compare
from remix.cli.data import data
from remix.cli.doctor import doctor
from remix.cli.dream import dream
from remix.cli.evaluate import evaluate
from remix.cli.export import export
from remix.cli.inspect import inspect
from remix.cli.learn import learn
from remix.cli.lists import backbones, datasets, methods, presets
from remix.cli.measure import measure
from remix.cli.parser import build_parser
from remix.cli.predict import predict
from remix.cli.report import report
from remix.cli.reproduce import reproduce
from remix.cli.run import run
from remix.cli.sweep import sweep
from remix.support.files import check_regular
from remix.support.machine import keep_freed_memory, out_of_memory
from remix.support.text import printable

__all__ = ["COMMANDS", "main"]


COMMANDS: dict[str, Callable[..., None]] = {
    "learn": learn,
    "predict": predict,
    "evaluate": evaluate,
    "inspect": inspect,
    "classes": classes,
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

_EXTENSIONS = "REMIX_IMPORT"  # of the environment, so that the processes that a command starts have it too
_DATA = "REMIX_DATA"
_TRAINING = {"learn", "run", "dream"}
_GOING_ON = {"run": "the same command with --resume goes on"} | dict.fromkeys(
    ("sweep", "reproduce"), "the same command goes on"
)
_LEAST_MEMORY = 700 << 20  # bytes of address space: torch alone takes 600
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
    chosen = vars(build_parser(COMMANDS).parse_args(given or ["--help"]))
    name = chosen.pop("command")
    if args is None and name in _TRAINING:
        keep_freed_memory()
    if args is None and _cramped():
        _end(name, _MORE_MEMORY, 2)
    try:
        _import_extensions(os.environ.get(_EXTENSIONS, ""))
        with _data_folder(chosen.get("data")):
            COMMANDS[name](**chosen)
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


@contextmanager
def _data_folder(given: object) -> Iterator[None]:
    """What --data names is the data folder of all that the command opens, transformers and texts too."""
    before = os.environ.get(_DATA)
    try:
        if given is not None:
            os.environ[_DATA] = str(given)
        yield
    finally:
        if given is not None:
            os.environ.pop(_DATA)
            if before is not None:
                os.environ[_DATA] = before


def _import_extensions(names: str) -> None:
    """Import what registers data sets, networks and methods of one's own: files (``mine.py``) and modules (``a.mine``).

    They are separated by commas, and imported once each.

    Raises:
        ValueError: for one that cannot be imported; says why.

    """
    for name in filter(None, (part.strip() for part in names.split(","))):
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                importlib.import_module(name)
        except Exception as error:
            reason = printable(f"{type(error).__name__}: {error}"[:300])
            raise ValueError(
                f"{_EXTENSIONS} names {printable(name[:80])}, which cannot be imported ({reason})"
            ) from error


def _import_file(path: Path) -> None:
    check_regular(path)
    name = f"remix_import:{path.resolve()}"  # two files of one name are two
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


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


def _cramped() -> bool:
    """Whether a limit leaves too little to load torch and scipy: OpenBLAS would wait in vain for more, for ever."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY


def _raise(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # `timeout` and others send it twice
    raise _EndedError(number)


def _end(command: str, reason: str, status: int) -> NoReturn:
    with suppress(OSError):  # a terminal that is gone
        print("\n".join(map(printable, f"remix {command}: {reason}".splitlines())), file=sys.stderr)
    sys.exit(status)
