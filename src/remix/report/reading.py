"""What is in the folder of a run, finished or not, whole or damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remix.experiments.compare import runs_in
from remix.experiments.events import Event, Events, read_events
from remix.experiments.run_directory import RunDirectory, RunDirectoryError
from remix.learning.metrics import AccuracyMatrix

__all__ = ["RunFacts", "read_runs"]


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A run as far as it came.

    Attributes:
        folder: where it is.
        config: its settings.
        summary: its result, None if it is not finished.
        events: of ``metrics.jsonl``.
        matrix: its accuracies so far, None before the end of the first task.

    """

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any] | None
    events: Events
    matrix: AccuracyMatrix | None

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.config["seed"])

    @property
    def tasks(self) -> int:
        """How many it has in all."""
        return int(self.config["data"]["tasks"])

    @property
    def learned(self) -> int:
        """How many of them are learned."""
        return len(self.matrix) if self.matrix is not None else 0

    @property
    def state(self) -> str:
        """In words."""
        return "finished" if self.summary else f"not finished: {self.learned} of {self.tasks} tasks learned"

    @property
    def start(self) -> Event:
        """What the run said of its machine and command; empty if it did not."""
        told = self.summary or next(reversed(self.events.of("start")), {})
        return {key: told[key] for key in ("command", "threads", "versions", "hardware") if key in told}

    def task(self, kind: str, number: int) -> list[Event]:
        """The events of a kind in a task, counted from 1."""
        return [event for event in self.events.of(kind) if event["task"] == number]


def read_runs(folders: Sequence[str | Path]) -> tuple[list[RunFacts], list[str]]:
    """All runs in these folders, and what could not be read.

    Args:
        folders: run directories; folders of run directories are looked into. A run that is named twice counts once.

    Raises:
        RunDirectoryError: if no run is left.

    """
    remarks: list[str] = []
    found: dict[Path, RunFacts] = {}
    for folder in folders:
        try:
            directories = runs_in(Path(folder))
        except RunDirectoryError as error:
            remarks.append(f"left out: {error}")
            continue
        for directory in directories:
            place = directory.path.resolve()
            if place in found:
                continue
            try:
                found[place] = _read(directory, remarks)
            except (ValueError, OSError) as error:
                remarks.append(f"left out: {error}")
    if not found:
        raise RunDirectoryError("; ".join(remark.removeprefix("left out: ") for remark in remarks))
    return list(found.values()), remarks


def _read(directory: RunDirectory, remarks: list[str]) -> RunFacts:
    config = directory.read_whole_config()
    summary, matrix = _result(directory, remarks)
    events = read_events(directory.metrics)
    remarks += events.damages
    if not events.events and summary is None:
        remarks.append(f"{directory.path}: nothing has been written down yet")
    return RunFacts(directory.path, config, summary, events, matrix)


def _result(directory: RunDirectory, remarks: list[str]) -> tuple[dict[str, Any] | None, AccuracyMatrix | None]:
    """The summary if the run is finished and it is whole; the matrix of it, or the one of the tasks so far."""
    if directory.finished:
        try:
            summary = directory.read_summary()
            return summary, AccuracyMatrix.from_dict(summary["matrix"])
        except RunDirectoryError as error:
            remarks.append(f"{error}: the run is shown as not finished")
    try:
        return None, AccuracyMatrix.read(directory.matrix)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        remarks.append(f"{error}: its accuracies are left out")
        return None, None
