"""Finished runs side by side: methods by seeds, and what may be said about their differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any, Literal

from remix.experiments.config import differences
from remix.experiments.paired import CONFIDENCE, Spread, paired_difference, spread
from remix.experiments.run_directory import RunDirectory, RunDirectoryError
from remix.learning.metrics import METRICS
from remix.methods import list_methods
from remix.support.settings import SettingError
from remix.support.text import as_csv, as_latex, as_markdown, printable, shown

__all__ = [
    "INTERVAL",
    "Comparison",
    "Format",
    "compare_by_data",
    "compare_runs",
    "comparison_cells",
    "format_comparison",
    "method_rank",
    "protocol",
    "run_rows",
    "runs_in",
    "variant_names",
]

Format = Literal["markdown", "csv", "latex"]
INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")
"""Head of a column: of the mean last accuracy, over seeds."""

_PAIRED_ON = "last_accuracy_macro"
_MINUTES = {"minutes": "minutes_in_all", "processor_minutes": "processor_minutes"}  # column, key in a summary
_SHOWN = 4  # settings in the name of a variant, at most
# What a run has besides data, network and training: method and seed are compared, and the device is not a setting.
_COMPARED = ("method", "settings", "seed", "accelerator", "devices", "precision")


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

    def interval(self, method: str) -> str:
        """Of the mean last accuracy of a method, over seeds; nothing if there is one seed."""
        known = self.spread(method, _PAIRED_ON)
        bounds = None if known is None else known.interval
        return "" if bounds is None else f"{max(0.0, bounds[0]):.1f} to {min(100.0, bounds[1]):.1f}"

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
        folders: run directories; folders of run directories are looked into. Files and folders without a run, which a
            glob may match, are left out.

    Raises:
        SettingError: if there is no finished run, or two of the same method, data, settings and seed.
        RunDirectoryError: if there is no run at all, or a result cannot be read.

    """
    finished, remarks = _finished(folders)
    return _compared(finished, remarks)


def compare_by_data(folders: Sequence[str | Path]) -> dict[str, Comparison]:
    """The same by data set, in the order in which these come: accuracies on different images say nothing together."""
    finished, remarks = _finished(folders)
    groups: dict[str, list[RunDirectory]] = {}
    for directory in finished:
        groups.setdefault(directory.read_whole_config()["data"]["name"], []).append(directory)
    found = {name: _compared(group, []) for name, group in groups.items()}
    last = list(found)[-1]
    return found | {last: replace(found[last], remarks=(*found[last].remarks, *remarks))}


def _finished(folders: Sequence[str | Path]) -> tuple[list[RunDirectory], list[str]]:
    """The runs that are finished, and sentences on what was left out."""
    directories: list[RunDirectory] = []
    foreign: list[RunDirectoryError] = []
    for folder in map(Path, folders):
        try:
            directories += runs_in(folder)
        except RunDirectoryError as error:
            if not folder.exists():
                raise
            foreign.append(error)
    if foreign and not directories:
        raise foreign[0]
    unfinished = [str(directory) for directory in directories if not directory.finished]
    finished = [directory for directory in directories if directory.finished]
    if not finished:
        raise SettingError(f"there is no finished run in {printable(', '.join(map(str, folders)))}")
    return finished, [f"not finished, left out: {', '.join(unfinished)}"] if unfinished else []


def _compared(finished: Sequence[RunDirectory], remarks: Sequence[str]) -> Comparison:
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
    order = sorted(runs, key=method_rank)
    sorted_runs = {name: dict(sorted(runs[name].items())) for name in order}
    where = tuple(places[name, seed] for name, seeds in sorted_runs.items() for seed in seeds)
    return Comparison(sorted_runs, where, (*remarks, *_inequalities(where)))


def method_rank(name: str) -> tuple[int, str]:
    """Methods as they are listed, then those that are not known here; variants by name."""
    known = list(list_methods())
    method = name.partition(" ")[0]
    return known.index(method) if method in known else len(known), name


def comparison_cells(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """A table of a comparison, a row per method: heads of the columns, and cells; the first two columns are texts."""
    first, *others = METRICS.values()
    seeds = "seed" if all(len(runs) == 1 for runs in found.summaries.values()) else "seeds"  # their numbers
    heads = ["method", seeds, first, INTERVAL, *others, "minutes", "processor minutes", "peak MiB"]
    rows = []
    for name, runs in found.summaries.items():
        last, *cells = (str(found.spread(name, metric) or "") for metric in METRICS)
        cells += [f"{spread([run[key] for run in runs.values()]).mean:.1f}" for key in _MINUTES.values()]
        peak = max(run["peak_memory_mib"] for run in runs.values())
        rows.append([name, " ".join(map(str, runs)), last, found.interval(name), *cells, str(peak)])
    return heads, rows


def format_comparison(groups: Mapping[str, Comparison], form: Format) -> str:
    """The tables, by data set, with what may be said below each, as text in a format; as CSV one line per run instead.

    Raises:
        SettingError: for an unknown format.

    """
    if form == "csv":
        rows = [{"data": name} | row for name, found in groups.items() for row in run_rows(found)]
        columns = dict.fromkeys(column for row in rows for column in row)
        return as_csv([{column: row.get(column) for column in columns} for row in rows]).rstrip("\n")
    if form not in ("markdown", "latex"):
        raise SettingError(f"format must be one of table, markdown, csv, latex, got {shown(form)}")
    laid_out, title, begin = {
        "markdown": (as_markdown, "**{}**\n\n", "\n"),
        "latex": (as_latex, "% {}\n", "% "),
    }[form]
    parts = []
    for name, found in groups.items():
        head = title.format(printable(Path(name).name)) if len(groups) > 1 else ""
        said = [f"{begin}{printable(line)}" for line in (*found.sentences(), *found.remarks)]
        parts.append("\n".join([head + laid_out(*comparison_cells(found), left=2), *said]))
    return "\n\n".join(parts)


def run_rows(found: Comparison) -> list[dict[str, Any]]:
    """One row per run: everything, to go on with elsewhere. If one was on a GPU, all have a column for its memory."""
    gpu = any("peak_gpu_mib" in run for runs in found.summaries.values() for run in runs.values())
    return [
        {
            "method": name,
            "seed": seed,
            **run["metrics"],
            **{column: run[key] for column, key in _MINUTES.items()},
            "peak_memory_mib": run["peak_memory_mib"],
            **({"peak_gpu_mib": run.get("peak_gpu_mib")} if gpu else {}),
        }
        for name, runs in found.summaries.items()
        for seed, run in runs.items()
    ]


def runs_in(folder: Path) -> list[RunDirectory]:
    """The run in a folder, or the runs in the folders in it, or in those of a quoted glob.

    Raises:
        RunDirectoryError: if there is none.

    """
    if not folder.exists() and (several := sorted(glob(str(folder)))):
        runs: list[RunDirectory] = []
        for place in map(Path, several):
            with suppress(RunDirectoryError):
                runs += runs_in(place)
        if runs:
            return runs
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


def protocol(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of the configuration of a run, what the methods that are compared should have in common."""
    return {key: value for key, value in config.items() if key not in _COMPARED}


def variant_names(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A name per run, the same for runs of the same method and settings.

    The method's name if all its runs have the same settings, else with what sets them apart:
    ``remix (prior.form=nll)`` and ``remix (prior.form=typical)``. Settings that have a name are told apart by that:
    ``remix-paper`` and ``remix-code``.

    Args:
        runs: method and settings (nested mappings of primitives) of every run.

    """
    flat = [_flat(settings) for _, settings in runs]
    methods = _named([method for method, _ in runs], [one.get("setting") for one in flat])
    families = {
        name: _apart([one for one, method in zip(flat, methods, strict=True) if method == name])
        for name in dict.fromkeys(methods)
    }
    apart = [[path for path in mine if path in families[method]] for mine, method in zip(flat, methods, strict=True)]
    names = [_name(method, mine, paths, _SHOWN) for method, mine, paths in zip(methods, flat, apart, strict=True)]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    for alike in places.values():
        differing = _apart([flat[place] for place in alike])
        telling = [path for path in flat[alike[0]] if path in differing]  # what the name does not say, first
        for place in alike if telling else []:
            paths = [*telling, *(path for path in apart[place] if path not in telling)]
            names[place] = _name(methods[place], flat[place], paths, max(_SHOWN, len(telling)))
    return names


def _named(methods: Sequence[str], settings: Sequence[Any]) -> list[str]:
    """Methods, with the name of their settings where runs of one method have several."""
    pairs = list(zip(methods, settings, strict=True))
    count = Counter(method for method, _ in dict.fromkeys(pairs))
    return [f"{method}-{setting}" if count[method] > 1 and setting else method for method, setting in pairs]


def _apart(family: Sequence[Mapping[str, Any]]) -> set[str]:
    """The settings in which a family differs."""
    paths = dict.fromkeys(path for one in family for path in one)
    return {path for path in paths if len({_text(one.get(path)) for one in family}) > 1}


def _name(method: str, mine: Mapping[str, Any], paths: Sequence[str], shown: int) -> str:
    words = [f"{'.'.join(path.split('.')[-2:])}={_text(mine.get(path))}" for path in paths]
    more = [f"+{len(words) - shown} more"] if len(words) > shown else []
    return f"{method} ({', '.join(words[:shown] + more)})" if words else method


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{at}.{key}" if at else str(key)
        found |= _flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
