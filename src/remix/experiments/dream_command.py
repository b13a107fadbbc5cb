"""`remix dream`."""

from __future__ import annotations

import shlex
import sys

from rich.console import Console

from remix.deploy.dream_files import DreamFiles
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import DreamPlan, make_plan
from remix.deploy.dreaming import DreamReport, describe, run_dream
from remix.deploy.sources import NetworkFile, open_model
from remix.learning.devices import as_device, on_device
from remix.support.display import say

__all__ = ["dream_command"]


def dream_command(
    model: str | None,
    network: NetworkFile | None,
    statistics: str | None,
    options: DreamOptions,
    out: str,
    *,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = False,
    console: Console | None = None,
) -> DreamReport:
    """Dream, and tell a person about it.

    Raises:
        ValueError: for whatever cannot be done, before any work.
        OSError: if a file cannot be read or written.

    """
    console = console or Console()
    files = DreamFiles.at(out)
    if overwrite and resume:
        raise ValueError("--resume goes on with a run, --overwrite starts it again: give one of them")
    files.prepare(overwrite, resume)
    opened = open_model(model, network, statistics)
    plan = make_plan(on_device(opened.model, as_device(device)), options)
    for note in (*opened.notes, *plan.notes):
        say(console, f"note: {note}")
    say(console, f"{len(plan.labels)} images of {', '.join(plan.record['classes'])}")
    say(console, describe(plan))
    report = run_dream(plan, files, console, resume)
    _tell(console, plan, report)
    return report


def _tell(console: Console, plan: DreamPlan, report: DreamReport) -> None:
    width = max(len(result.name) for result in report.classes)
    if any(result.images for result in report.classes):
        say(console, "what the network itself reads in them:")
        for result in report.classes:
            say(console, f"  {result.name:<{width}}  {result.right} of {result.images} as {result.name}")
    missing = {result.name: result.images for result in report.classes if result.images < _asked(plan, result.name)}
    if report.finished and missing:
        say(console, f"note: the generator made too few images of {', '.join(missing)}: give it more --steps")
    longest = max((len(path) for path in report.written), default=0)
    for path, what in report.written.items():
        say(console, f"{path:<{longest}}  {what}")
    if not report.finished:
        where = report.stopped_at or "the beginning"
        usable = any(result.images for result in report.classes)
        say(console, f"stopped in {where}; {'what was found so far is saved' if usable else 'no image is ready yet'}")
        say(console, f"to go on: {_command()}")


def _asked(plan: DreamPlan, name: str) -> int:
    return int((plan.labels == plan.model.labels([name])[0]).sum())


def _command() -> str:
    """What was typed, with --resume."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["remix", *words, "--resume"])
