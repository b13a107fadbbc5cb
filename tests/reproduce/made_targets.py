"""Targets as `remix reproduce` makes them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from rich.console import Console

from remix.cli.reproduce import Printer
from remix.reproduce.targets import Reproduction, reproduce_target


def make(target: str, out: Path, **options: Any) -> tuple[bool, str]:
    """Whether everything was done, and what was printed."""
    console = Console(record=True, width=300, file=io.StringIO())
    complete = reproduce_target(target, Reproduction(out, **options), Printer(console))
    return complete, console.export_text()


def rows_of(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file."""
    with path.open() as file:
        return list(csv.DictReader(file))
