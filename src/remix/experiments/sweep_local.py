"""Jobs of a sweep as processes of this machine, a few at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from remix.experiments.sweep_jobs import Job
from remix.support.files import open_appending

__all__ = ["Status", "command", "log_file", "run_locally"]

Status = Literal["waits", "runs", "finished", "crashed", "refused", "interrupted"]
_REFUSED = 2  # the command's status for something that the person has to set right
_BETWEEN_LOOKS = 0.2  # seconds
_PATIENCE = 60.0  # seconds that interrupted runs have for saving


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def close(self) -> None:
        self.log.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass
class _Sweep:
    report: Callable[[Job, Status], None]
    threads: int
    tries: dict[str, int] = field(default_factory=dict)
    running: list[_Running] = field(default_factory=list)

    def start(self, job: Job) -> None:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        self.tries[job.name] = self.tries.get(job.name, 0) + 1
        log = open_appending(log_file(job))
        # A session of its own: Ctrl-C reaches this process, which passes it on once. The pipe ends with this process,
        # also if that is killed, and the run with the pipe.
        process = subprocess.Popen(
            command(job),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": str(self.threads), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self.running.append(_Running(job, process, log))
        self.report(job, "runs")

    def ended(self) -> list[tuple[Job, int]]:
        over = [one for one in self.running if one.process.poll() is not None]
        self.running = [one for one in self.running if one not in over]
        for one in over:
            one.close()
        return [(one.job, one.process.returncode) for one in over]

    def interrupt(self) -> None:
        for one in self.running:
            one.process.send_signal(signal.SIGINT)
        limit = time.monotonic() + _PATIENCE
        for one in self.running:
            try:
                one.process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
            one.close()
            self.report(one.job, "finished" if one.job.finished else "interrupted")


def run_locally(
    jobs: Sequence[Job], parallel: int, report: Callable[[Job, Status], None], retries: int = 1
) -> dict[str, Status]:
    """Run what is not finished, ``parallel`` at a time, each on its share of the processors.

    A run that crashed goes on from its checkpoint, at most ``retries`` times; one that was refused (a setting, missing
    data) is not tried again. Ctrl-C lets every run save itself.

    Args:
        jobs: in the order in which they begin.
        parallel: how many at a time.
        report: called when a job's status changes.
        retries: of a crashed run.

    Returns:
        how every job ended, by name.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the runs are saved.

    """
    ends: dict[str, Status] = {}
    sweep = _Sweep(report, max(1, (os.cpu_count() or 1) // parallel))
    waiting = [job for job in jobs if not job.finished]
    for job in jobs:
        if job.finished:
            ends[job.name] = "finished"
            report(job, "finished")
    try:
        while waiting or sweep.running:
            while waiting and len(sweep.running) < parallel:
                sweep.start(waiting.pop(0))
            for job, code in sweep.ended():
                status: Status = "finished" if job.finished else "refused" if code == _REFUSED else "crashed"
                if status == "crashed" and sweep.tries[job.name] <= retries:
                    waiting.insert(0, job)
                ends[job.name] = status
                report(job, status)
            time.sleep(_BETWEEN_LOOKS)
    except BaseException:  # also SystemExit after TERM or HUP, and a log that cannot be written
        sweep.interrupt()
        raise
    return ends


def command(job: Job) -> list[str]:
    """The words that run a job in a process of its own, which is interrupted when its standard input ends."""
    return [sys.executable, "-m", "remix.experiments.sweep_child", *job.words]


def log_file(job: Job) -> Path:
    """Where a job's output goes: beside its folder, since a folder that is not empty holds a run."""
    return job.folder.with_name(f"{job.folder.name}.log")
