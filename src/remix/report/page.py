"""The page itself: everything of all groups in one text of HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from remix._version import __version__
from remix.learning.metrics import METRICS
from remix.report.charts import (
    Chart,
    accuracy_chart,
    forgetting_chart,
    likelihood_charts,
    likelihood_table,
    matrices,
    new_and_old_chart,
)
from remix.report.glossary import INVERSION, STAGES, TRAINING, explained
from remix.report.pictures import real_images, show_dreams
from remix.report.runs import Group, group_runs, read_runs
from remix.report.tables import phase_costs, run_rows, seconds_chart, variant_facts
from remix.report.terms import epoch_accuracy_charts, inversion_charts, last_terms, training_charts
from remix.support.files import write_text
from remix.support.settings import SettingError

__all__ = ["render", "write_report"]

_FOR_DREAMS, _FOR_REAL, _FOR_CHARTS = 2_400_000, 600_000, 1_000_000  # letters of all groups together
_IN_HEADLINE = 4  # methods
_POINTS = (400, 100, 40, 12)  # of a curve, until there is room for all of them


def write_report(folders: Sequence[str | Path], out: str | Path, data: str | None = None) -> list[str]:
    """Write a page about runs.

    Args:
        folders: run directories, or folders that hold some.
        out: the page; a report that is there already is replaced.
        data: folder of data sets, to show real images beside synthetic ones.

    Returns:
        sentences for a person: what could not be read, and where the page is.

    Raises:
        ValueError: (RunDirectoryError, SettingError, DataError) for what the person can set right; nothing was written.
        OSError: if the page cannot be written.

    """
    page = Path(out)
    if page.is_dir() or page.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"--out must name a page that ends with .html, got {out}")
    runs, remarks = read_runs(folders)
    groups, about = group_runs(runs)
    text = render(groups, [*about, *remarks], data)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text)
    notes = [*about, *remarks, *(remark for group in groups for remark in group.remarks)]
    size = len(text.encode()) / 2**20
    return [*(f"note: {note}" for note in notes), f"report   {page} ({len(runs)} runs, {size:.1f} MiB)"]


def render(groups: Sequence[Group], remarks: Sequence[str], data: str | None = None) -> str:
    """The page about these runs.

    Args:
        groups: the runs.
        remarks: about all of them.
        data: folder of data sets, to show real images.

    Raises:
        DataError, SettingError: as `real_images`.

    """
    parts = [_part(number, group, data, len(groups)) for number, group in enumerate(groups)]
    content = _content(parts)
    library, script = _asset("uPlot.iife.min.js"), _asset("report.js")
    page = (
        _environment()
        .get_template("page.html")
        .render(
            title=", ".join(group.name for group in groups),
            groups=parts,
            remarks=remarks,
            metrics=METRICS,
            version=__version__,
            date=time.strftime("%Y-%m-%d %H:%M"),
            styles=Markup(_asset("uPlot.min.css") + _asset("report.css")),
            library=Markup(library),
            script=Markup(script),
            licence=_asset("uPlot-LICENSE.txt"),
            # Nothing may run on the page but these two scripts, and nothing is fetched, whatever classes are called.
            hashes=Markup(" ".join(_hash(text) for text in (library, script))),
            content=Markup(content),
        )
    )
    return page.encode("utf-8", "replace").decode()  # names of files may hold what is no text


def _part(number: int, group: Group, data: str | None, groups: int) -> dict[str, Any]:
    dreams = show_dreams(group, _FOR_DREAMS // groups)
    real = real_images(group, data, _FOR_REAL // groups)
    over_tasks = {
        "accuracy": accuracy_chart(group),
        "forgetting": forgetting_chart(group),
        "new": new_and_old_chart(group),
    }
    chosen = {
        "training": training_charts(group),
        "tested": epoch_accuracy_charts(group),
        "inversion": inversion_charts(group),
        "likelihood": likelihood_charts(group),
    }
    seconds = seconds_chart(group)
    single = {**over_tasks, **({"seconds": seconds} if seconds else {})}
    charts: dict[str, dict[str, Chart]] = {f"{name}-{number}": {"": chart} for name, chart in single.items()}
    charts |= {f"{name}-{number}": plots for name, plots in chosen.items()}
    costs = phase_costs(group)
    return {
        "number": number,
        "group": group,
        "headline": _headline(group),
        "seeds": max(map(len, group.variants.values())),
        "names": list(group.variants),
        "results": _results(group),
        "sentences": group.comparison.sentences() if group.comparison else [],
        "over_tasks": over_tasks,
        "seconds": seconds,
        "choices": {name: _choices(plots, group) for name, plots in chosen.items()},
        "training_ends": last_terms(group, inversion=False),
        "inversion_ends": last_terms(group, inversion=True),
        "words": {
            "training": explained(TRAINING, _terms(chosen["training"])),
            "inversion": explained(INVERSION, _terms(chosen["inversion"])),
            "stages": explained(STAGES, (row["phase"] for row in costs["rows"])),
        },
        "likelihoods": likelihood_table(group),
        "matrices": matrices(group),
        "dreams": dreams,
        "dreamers": list(dict.fromkeys((grid.method, grid.name) for grid in dreams.tasks)),
        "real": {row.name: (i, row) for i, row in enumerate(real)},
        "costs": costs,
        "runs": run_rows(group),
        "facts": variant_facts(group),
        "charts": charts,
    }


def _content(parts: Sequence[dict[str, Any]]) -> str:
    """What the script draws, as JSON; curves with fewer points where there would be too much of it."""
    text = ""
    for most in _POINTS:
        charts = {
            name: {key: chart.to_plain(most) for key, chart in plots.items()}
            for part in parts
            for name, plots in part["charts"].items()
        }
        text = _inert({"charts": charts, "matrices": [part["matrices"] for part in parts]})
        if len(text) <= _FOR_CHARTS:
            break
    return text


def _headline(group: Group) -> str:
    """The result in a sentence, the best method first."""
    found = group.comparison
    if found is None:
        return "No run is finished yet."
    last = {name: found.spread(name, "last_accuracy_macro") for name in found.summaries}
    known = sorted(((name, value) for name, value in last.items() if value), key=lambda pair: -pair[1].mean)
    texts = [
        f"{name}\N{NO-BREAK SPACE}"
        + f"{value.mean:.1f}{'' if value.std is None else f' ± {value.std:.1f}'} %".replace(" ", "\N{NO-BREAK SPACE}")
        for name, value in known[:_IN_HEADLINE]
    ]
    more = f", {len(known) - len(texts)} more below" if len(known) > len(texts) else ""
    seeds = sorted({seed for runs in found.summaries.values() for seed in runs})
    counted = f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({', '.join(map(str, seeds))})"
    return f"Accuracy after {group.tasks} tasks: {', '.join(texts)}{more}; {counted}"


def _terms(charts: dict[str, Chart]) -> Iterator[str]:
    return (line.name for chart in charts.values() for line in chart.lines)


def _results(group: Group) -> list[dict[str, Any]]:
    """The headline numbers of every method with finished runs, as texts."""
    found = group.comparison
    if found is None:
        return []
    return [
        {
            "name": name,
            "seeds": " ".join(map(str, runs)),
            "numbers": [str(found.spread(name, metric) or "") for metric in METRICS],
            "tested_on": ", ".join(dict.fromkeys(str(run.get("tested_on", "test")) for run in runs.values())),
        }
        for name, runs in found.summaries.items()
    ]


def _choices(plots: dict[str, Any], group: Group) -> dict[str, list[tuple[str, str]]]:
    """Methods and tasks that a chart can be chosen by: pairs of key and name."""
    names = list(group.variants)
    methods = list(dict.fromkeys(key.split("|")[0] for key in plots if "|" in key))
    tasks = sorted({int(key.split("|")[-1]) for key in plots})
    return {
        "method": [(key, names[int(key)]) for key in methods],
        "task": [(str(task), f"task {task}") for task in tasks],
    }


def _inert(content: Any) -> str:
    """JSON that no HTML parser takes for anything else."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files("remix.report").joinpath("assets").joinpath(name).read_text("utf-8")


@cache
def _environment() -> Environment:
    loader = PackageLoader("remix.report", "assets")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
