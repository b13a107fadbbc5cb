"""What `remix sweep` does."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console

from remix.experiments.compare import compare_runs, format_comparison
from remix.experiments.sweep_jobs import Job, parse_seeds, sweep_jobs
from remix.experiments.sweep_local import Status, log_file, run_locally
from remix.experiments.sweep_slurm import run_on_slurm
from remix.support.display import say
from remix.support.files import open_regular

__all__ = ["finish_jobs", "sweep_command"]

_TAIL = 4096  # bytes of a log in which its last line is looked for

Start = Callable[[Sequence[Job], int, Callable[[Job, Status], None]], dict[str, Status]]


def sweep_command(
    preset: str,
    sets: Sequence[str],
    seeds: str,
    parallel: int,
    out: str,
    data: str | None,
    *,
    validation: bool = False,
    cluster: bool = False,
    slurm: Sequence[str] = (),
    dry_run: bool = False,
    console: Console | None = None,
) -> int:
    """Run every combination, say what happens, and compare the results.

    Returns:
        0; 1 if a run crashed or was refused, which is said; 130 after Ctrl-C.

    Raises:
        ValueError: for what the person can set right; nothing was started.

    """
    console = console or Console()
    if parallel < 1:
        raise ValueError(f"--jobs must be at least 1, got {parallel}")
    jobs = sweep_jobs(preset, sets, parse_seeds(seeds), out, data, validation)
    left = [job for job in jobs if not job.finished]
    say(console, f"{len(jobs)} runs, {len(jobs) - len(left)} finished, {parallel} at a time, in {out}/")
    if dry_run:
        for job in jobs:
            say(console, f"{'finished' if job.finished else 'to do':<9} remix {shlex.join(job.words)}")
        return 0
    try:
        all_done = finish_jobs(
            jobs, parallel, console, partial(run_on_slurm, options=slurm) if cluster else run_locally
        )
    except KeyboardInterrupt:
        console.print("interrupted; what was done is saved, and the same command goes on", style="red")
        return 130
    done = [job.folder for job in jobs if job.finished]
    if done:
        found = compare_runs(done)
        console.print(format_comparison(found, "table"))
        for line in (*found.sentences(), *found.remarks):
            say(console, line)
    return 0 if all_done else 1


def finish_jobs(jobs: Sequence[Job], parallel: int, console: Console, start: Start = run_locally) -> bool:
    """Run what is not finished, and say what happens.

    Args:
        jobs: in the order in which they begin.
        parallel: how many at a time.
        console: where to say it.
        start: where they run.

    Returns:
        whether all are finished; the last words of the others were said.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the runs are saved.

    """
    ends = start(jobs, parallel, _Teller(console, len(jobs), parallel))
    bad = [job for job in jobs if ends[job.name] != "finished"]
    for job in bad:
        say(console, f"{job.name} {ends[job.name]}: {_last_line(job)} ({log_file(job)})", style="red")
    return not bad


class _Teller:
    """A line per change, with how many are done and how long the rest will take."""

    def __init__(self, console: Console, count: int, parallel: int) -> None:
        self.console, self.count, self.parallel = console, count, parallel
        self.ended = 0
        self.begun: dict[str, float] = {}
        self.took: list[float] = []  # seconds of the runs that were finished here

    def __call__(self, job: Job, status: Status) -> None:
        if status == "runs":
            self.begun[job.name] = time.monotonic()
            say(self.console, f"  {job.name} begins, log in {log_file(job)}")
            return
        rest = ""
        if status == "finished":
            self.ended += 1
            if job.name in self.begun:
                self.took.append(time.monotonic() - self.begun[job.name])
                left = sum(self.took) / len(self.took) * (self.count - self.ended) / self.parallel
                rest = f", about {left / 60:.0f} min left" if self.ended < self.count else ""
        say(self.console, f"  {job.name} {status}: {self.ended} of {self.count} finished{rest}")


def _last_line(job: Job) -> str:
    try:
        with open_regular(log_file(job)) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").split("\n")
    except OSError:
        return "no log"
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else "it said nothing"
