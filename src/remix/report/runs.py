"""The runs of a report: what is in their folders, finished or not, whole or damaged; by data, method and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remix.experiments.compare import Comparison, method_rank, protocol, runs_in, variant_names
from remix.experiments.events import Event, Events, read_events
from remix.experiments.run_directory import RunDirectory, RunDirectoryError
from remix.learning.metrics import AccuracyMatrix
from remix.support.settings import SettingError

__all__ = ["Group", "RunFacts", "group_runs", "read_runs"]


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


@dataclass(frozen=True, eq=False)
class Group:
    """Runs on the same data with the same network and training.

    Attributes:
        name: of the data, and what sets the group apart from others of the same data.
        variants: runs by method (one that ran with several settings is there once for each), then by seed.
        comparison: of the finished ones, None if there are none.
        remarks: what a reader of the numbers should know.

    """

    name: str
    variants: dict[str, dict[int, RunFacts]]
    comparison: Comparison | None
    remarks: tuple[str, ...]

    @property
    def tasks(self) -> int:
        """The same for all runs."""
        return next(iter(next(iter(self.variants.values())).values())).tasks

    @property
    def runs(self) -> list[RunFacts]:
        """All of them."""
        return [run for seeds in self.variants.values() for run in seeds.values()]


def group_runs(runs: Sequence[RunFacts]) -> tuple[list[Group], list[str]]:
    """Sort runs into groups; also what is to be said about all of them.

    Raises:
        SettingError: if two runs are the same in everything, the seed included.

    """
    names = variant_names([(run.config["data"]["name"], protocol(run.config)) for run in runs])
    groups = [
        _group(name, [run for run, of in zip(runs, names, strict=True) if of == name]) for name in dict.fromkeys(names)
    ]
    remarks = []
    if len(groups) > 1:
        listed = "; ".join(group.name for group in groups)
        remarks.append(
            f"these runs are of {len(groups)} different presets (data, network or training): {listed}. "
            "Numbers of one cannot be compared with those of another, so each has its own part of the page."
        )
    return groups, remarks


def _group(name: str, runs: Sequence[RunFacts]) -> Group:
    names = variant_names([(run.config["method"], run.config["settings"]) for run in runs])
    found: dict[str, dict[int, RunFacts]] = {}
    for run, variant in zip(runs, names, strict=True):
        same = found.setdefault(variant, {}).get(run.seed)
        if same is not None:
            raise SettingError(f"{same.folder} and {run.folder} are both {variant} with seed {run.seed}; name one")
        found[variant][run.seed] = run
    variants = {variant: dict(sorted(found[variant].items())) for variant in sorted(found, key=method_rank)}
    return Group(name, variants, _comparison(variants), (*_unfinished(runs), *_missing_seeds(variants)))


def _comparison(variants: Mapping[str, Mapping[int, RunFacts]]) -> Comparison | None:
    finished = {
        variant: {seed: run.summary for seed, run in seeds.items() if run.summary is not None}
        for variant, seeds in variants.items()
    }
    summaries = {variant: seeds for variant, seeds in finished.items() if seeds}
    folders = [variants[variant][seed].folder for variant, seeds in summaries.items() for seed in seeds]
    return Comparison(summaries, tuple(folders), ()) if summaries else None


def _unfinished(runs: Sequence[RunFacts]) -> list[str]:
    open_runs = [f"{run.folder} ({run.state})" for run in runs if run.summary is None]
    if not open_runs:
        return []
    return [f"not finished, so not part of the means in the table of results: {'; '.join(open_runs)}"]


def _missing_seeds(variants: Mapping[str, Mapping[int, RunFacts]]) -> list[str]:
    every = sorted({seed for seeds in variants.values() for seed in seeds})
    missing = {variant: [seed for seed in every if seed not in seeds] for variant, seeds in variants.items()}
    return [
        f"{variant} was not run with seed {', '.join(map(str, seeds))}, which other methods were: differences are "
        "those over common seeds, means are over the seeds that each has"
        for variant, seeds in missing.items()
        if seeds
    ]
