"""Runs of a sweep brought to their end, and what is told of them meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from remix.experiments.sweep_jobs import Job
from remix.experiments.sweep_local import Status, log_file, run_locally
from remix.support.files import open_regular

__all__ = ["finish_jobs"]

_TAIL = 4096  # bytes of a log in which its last line is looked for

Start = Callable[[Sequence[Job], int, Callable[[Job, Status], None]], dict[str, Status]]


def finish_jobs(
    jobs: Sequence[Job], parallel: int, tell: Callable[[str], None], start: Start = run_locally
) -> list[str]:
    """Run what is not finished.

    Args:
        jobs: in the order in which they begin.
        parallel: how many at a time.
        tell: given a line whenever one begins or ends.
        start: where they run.

    Returns:
        a sentence for each that is not finished, with its last words.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the runs are saved.

    """
    ends = start(jobs, parallel, _Teller(tell, len(jobs), parallel))
    bad = [job for job in jobs if ends[job.name] != "finished"]
    return [f"{job.name} {ends[job.name]}: {_last_line(job)} ({log_file(job)})" for job in bad]


class _Teller:
    """A line per change, with how many are done and how long the rest will take."""

    def __init__(self, tell: Callable[[str], None], count: int, parallel: int) -> None:
        self.tell, self.count, self.parallel = tell, count, parallel
        self.ended = 0
        self.begun: dict[str, float] = {}
        self.took: list[float] = []  # seconds of the runs that were finished here

    def __call__(self, job: Job, status: Status) -> None:
        if status == "runs":
            self.begun[job.name] = time.monotonic()
            self.tell(f"  {job.name} begins, log in {log_file(job)}")
            return
        rest = ""
        if status == "finished":
            self.ended += 1
            if job.name in self.begun:
                self.took.append(time.monotonic() - self.begun[job.name])
                left = sum(self.took) / len(self.took) * (self.count - self.ended) / self.parallel
                rest = f", about {left / 60:.0f} min left" if self.ended < self.count else ""
        self.tell(f"  {job.name} {status}: {self.ended} of {self.count} finished{rest}")


def _last_line(job: Job) -> str:
    try:
        with open_regular(log_file(job)) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").split("\n")
    except OSError:
        return "no log"
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else "it said nothing"
