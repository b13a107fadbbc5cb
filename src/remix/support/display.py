"""Showing how a long run goes: a live bar in a terminal, a line that changes in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from remix.support.text import printable

__all__ = ["Display", "duration", "say"]

_QUIET, _PATIENCE = 5.0, 60.0  # seconds between plain lines: at least, and where little happens
_OFTEN, _BAR = 0.25, 24  # seconds between changes in a notebook, and letters of its bar
_STEP = 0.05  # of all the work, worth a plain line


def duration(seconds: float) -> str:
    """A time for people: 8 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def say(console: Console, text: str, style: str = "") -> None:
    """A line for the terminal, as it is: neither markup nor commands to the terminal within it mean anything."""
    console.print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


class Display:
    """A context in which `show` tells how far things are.

    Args:
        console: where to.

    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._first: float | None = None
        self._printed = (float("-inf"), 0.0)
        self._bar = Progress(BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"))
        self._task = self._bar.add_task("", total=1.0, left="")
        self._what = Text("starting")  # in lines of its own: beside the bar, a narrow terminal would cut it
        self._terms = Text(style="dim")
        self._live: Live | None = None
        self._cell: Any = None

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            shown = Group(self._what, self._bar, self._terms)
            self._live = Live(shown, console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        elif self.console.is_jupyter:
            display = import_module("IPython.display").display  # not rich's, which needs widgets
            self._cell = display(_as_text("starting"), raw=True, display_id=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._cell is not None:
            how = "done in" if kind is None else "stopped after"
            self._cell.update(_as_text(f"{how} {duration(self.elapsed)}"), raw=True)
            self._cell = None

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def show(self, what: str, done: float, numbers: Mapping[str, float], last: bool = False) -> None:
        """Tell where things stand.

        Args:
            what: such as "refine, step 12 of 160".
            done: of all the work, within 0..1.
            numbers: by name.
            last: whether this is the end of something, which is worth a line of its own.

        """
        if self._first is None:
            # What was done before (a resumed run) says nothing about the speed of this one.
            self._first, self._began = done, time.monotonic()
        left = self._left(done)
        values = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        if self._live is not None:
            self._bar.update(self._task, completed=done, left=left)
            self._what.plain = what
            self._terms.plain = values
        now = time.monotonic()
        pause, progress = now - self._printed[0], done - self._printed[1]
        if self._cell is not None:
            if last or pause >= _OFTEN:
                self._printed = (now, done)
                bar = ("█" * round(_BAR * done)).ljust(_BAR, "░")
                parts = [f"{bar} {100 * done:3.0f} %", printable(what), values, left]
                self._cell.update(_as_text("  ".join(part for part in parts if part)), raw=True)
            return
        due = pause >= _PATIENCE or (pause >= _QUIET and progress >= _STEP)
        if last or (due and self._live is None):
            self._printed = (now, done)
            parts = [f"{100 * done:3.0f} %", what, values, left]
            say(self.console, "  ".join(part for part in parts if part))

    def say(self, text: str) -> None:
        """A line that stays."""
        say(self.console, text)

    def _left(self, done: float) -> str:
        made = done - (self._first or 0.0)
        if made <= 0 or self.elapsed < 1:
            return ""
        return f"{duration(self.elapsed * (1 - done) / made)} left"


def _as_text(line: str) -> dict[str, str]:
    """A line as notebooks take it."""
    return {"text/plain": line}
