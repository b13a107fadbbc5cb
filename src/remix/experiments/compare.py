"""Finished runs side by side: methods by seeds, and what may be said about their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from remix.experiments.paired import Spread, paired_difference, spread
from remix.experiments.run_config import differences
from remix.experiments.run_directory import RunDirectory, RunDirectoryError
from remix.experiments.variants import protocol, variant_names
from remix.learning.metrics import METRICS
from remix.methods import list_methods
from remix.support.settings import SettingError
from remix.support.tables import as_csv, as_latex, as_markdown
from remix.support.text import printable, shown

__all__ = [
    "Comparison",
    "Format",
    "compare_runs",
    "format_comparison",
    "method_rank",
    "run_rows",
    "runs_in",
]

Format = Literal["table", "markdown", "csv", "latex"]
_PAIRED_ON = "last_accuracy_macro"
_MINUTES = {"minutes": "minutes_in_all", "processor_minutes": "processor_minutes"}  # column, key in a summary


@dataclass(frozen=True)
class Comparison:
    """Runs by method; one that ran with several settings, or on several data, is there once for each, named after what
    differs.

    Attributes:
        summaries: of the runs, by method, by seed.
        folders: of the runs, in the same order.
        remarks: what a reader of the numbers should know (runs of different data or training are compared).

    """

    summaries: dict[str, dict[int, dict[str, Any]]]
    folders: tuple[Path, ...]
    remarks: tuple[str, ...]

    def spread(self, method: str, metric: str) -> Spread | None:
        """Over the seeds of a method; None if the metric does not exist (forgetting with one task)."""
        values = [summary["metrics"][metric] for summary in self.summaries[method].values()]
        return None if None in values else spread(values)

    def sentences(self, best: str | None = None) -> list[str]:
        """The method ``best`` (the last one by default) against every other on the same data, over common seeds."""
        best = best or list(self.summaries)[-1]
        others = [name for name in self.summaries if name != best and self._tested(name) == self._tested(best)]
        values = {
            name: {seed: summary["metrics"][_PAIRED_ON] for seed, summary in runs.items()}
            for name, runs in self.summaries.items()
        }
        return [
            paired_difference(values[best], values[other]).sentence(best, other, "points of last accuracy")
            for other in others
            if values[best].keys() & values[other].keys()
        ]

    def _tested(self, name: str) -> tuple[Any, ...]:
        summary = next(iter(self.summaries[name].values()))
        return tuple(summary.get(key) for key in ("data", "tasks", "tested_on"))


def compare_runs(folders: Sequence[str | Path]) -> Comparison:
    """Read finished runs.

    Args:
        folders: run directories; folders of run directories are looked into.

    Raises:
        SettingError: if there is no finished run, or two of the same method, data, settings and seed.
        RunDirectoryError: if a result cannot be read.

    """
    directories = [found for folder in folders for found in runs_in(Path(folder))]
    unfinished = [str(directory) for directory in directories if not directory.finished]
    finished = [directory for directory in directories if directory.finished]
    configs = [directory.read_whole_config() for directory in finished]
    names = variant_names([(config["method"], protocol(config) | config["settings"]) for config in configs])
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    places: dict[tuple[str, int], Path] = {}
    for directory, name in zip(finished, names, strict=True):
        summary = directory.read_summary()
        key = name, summary["seed"]
        if key in places:
            raise SettingError(
                f"{printable(places[key])} and {directory} are both {printable(name)} with seed {key[1]}; name one"
            )
        places[key] = directory.path
        runs.setdefault(key[0], {})[key[1]] = summary
    if not runs:
        raise SettingError(f"there is no finished run in {printable(', '.join(map(str, folders)))}")
    order = sorted(runs, key=method_rank)
    remarks = [f"not finished, left out: {', '.join(unfinished)}"] if unfinished else []
    sorted_runs = {name: dict(sorted(runs[name].items())) for name in order}
    where = tuple(places[name, seed] for name, seeds in sorted_runs.items() for seed in seeds)
    return Comparison(sorted_runs, where, (*remarks, *_inequalities(where)))


def method_rank(name: str) -> tuple[int, str]:
    """Methods as they are listed, then those that are not known here; variants by name."""
    known = list(list_methods())
    method = name.partition(" ")[0]
    return known.index(method) if method in known else len(known), name


def format_comparison(found: Comparison, form: Format) -> str | Table:
    """As a table for the terminal, or text in one of the other formats.

    Raises:
        SettingError: for an unknown format.

    """
    heads = ["method", "seeds", *METRICS.values(), "minutes", "processor minutes", "peak MiB"]
    if form == "csv":
        return as_csv(run_rows(found)).rstrip("\n")
    rows = []
    for name, runs in found.summaries.items():
        cells = [str(found.spread(name, metric) or "") for metric in METRICS]
        cells += [f"{spread([run[key] for run in runs.values()]).mean:.1f}" for key in _MINUTES.values()]
        peak = max(run["peak_memory_mib"] for run in runs.values())
        rows.append([name, " ".join(map(str, runs)), *cells, str(peak)])
    if form == "table":
        table = Table(*heads, title="percent, means over tasks; mean ± standard deviation over seeds")
        table.columns[0].overflow = "fold"
        for column in table.columns[2:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        return table
    if form == "markdown":
        return as_markdown(heads, rows, left=2)
    if form == "latex":
        return as_latex(heads, rows, left=2)
    raise SettingError(f"format must be one of table, markdown, csv, latex, got {shown(form)}")


def run_rows(found: Comparison) -> list[dict[str, Any]]:
    """One row per run: everything, to go on with elsewhere."""
    return [
        {
            "method": name,
            "seed": seed,
            **run["metrics"],
            **{column: run[key] for column, key in _MINUTES.items()},
            "peak_memory_mib": run["peak_memory_mib"],
        }
        for name, runs in found.summaries.items()
        for seed, run in runs.items()
    ]


def runs_in(folder: Path) -> list[RunDirectory]:
    """The run in a folder, or the runs in the folders in it. Raises RunDirectoryError if there is none."""
    if not folder.is_dir():
        raise RunDirectoryError(f"there is no folder {printable(folder)}")
    if (folder / "config.yaml").is_file():
        return [RunDirectory(folder)]
    found = [RunDirectory(file.parent) for file in sorted(folder.glob("*/config.yaml"))]
    if not found:
        raise RunDirectoryError(f"{printable(folder)} holds no run")
    return found


def _inequalities(folders: Sequence[Path]) -> list[str]:
    """Settings besides method and seed in which the runs differ from the first one."""
    first, *others = (RunDirectory(folder).read_config() for folder in folders)
    ignored = ("method", "seed", "settings.")
    names = {
        line.partition(":")[0] for other in others for line in differences(first, other) if not line.startswith(ignored)
    }
    return [f"these runs differ in more than method and seed: {', '.join(sorted(names))}"] if names else []
