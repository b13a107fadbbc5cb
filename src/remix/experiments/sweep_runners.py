"""Where the runs of a sweep go on: as processes of this machine, or on a Slurm cluster through submitit.

``python -m remix.experiments.sweep_runners WORDS`` is ``remix WORDS``, interrupted when its standard input ends: so
that the runs of a sweep save themselves and end with it, also if it is killed.
"""

from __future__ import annotations

import _thread
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from remix.experiments.sweep import Job, Report, Status
from remix.support.files import open_appending
from remix.support.settings import SettingError

__all__ = ["run_locally", "run_on_slurm", "threads_of_each"]

# Statuses of the command that would be the same again: an error or a loss that is not finite, something to set right.
_ENDS: dict[int, Status] = {1: "failed", 2: "refused"}
_TRIES = 2  # of a run that was killed, or crashed
_BETWEEN_LOOKS, _BETWEEN_LOOKS_AT_A_CLUSTER = 0.2, 2.0  # seconds
_PATIENCE = 60.0  # seconds that interrupted runs have for saving


def run_locally(jobs: Sequence[Job], parallel: int, report: Report) -> dict[str, Status]:
    """Run what is not finished, ``parallel`` at a time, each on its share of the processors.

    A run that crashed or was killed goes on from its checkpoint, once. One that failed by itself or was refused (a
    setting, missing data) would again, and is not tried. Ctrl-C lets every run save itself.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the runs are saved.

    """
    ends: dict[str, Status] = {}
    tries: Counter[str] = Counter()
    running: dict[Job, subprocess.Popen[bytes]] = {}
    waiting = [job for job in jobs if not job.finished]
    for job in jobs:
        if job.finished:
            ends[job.name] = "finished"
            report(job, "finished")
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.pop(0)
                running[job] = _start(job, threads_of_each(parallel))
                tries[job.name] += 1
                report(job, "runs")
            for job in [job for job, process in running.items() if process.poll() is not None]:
                code = _close(running.pop(job))
                status: Status = "finished" if job.finished else _ENDS.get(code, "crashed")
                if status == "crashed" and tries[job.name] < _TRIES:
                    waiting.insert(0, job)
                ends[job.name] = status
                report(job, status)
            time.sleep(_BETWEEN_LOOKS)
    except BaseException:  # also SystemExit after TERM or HUP, and a log that cannot be written
        _interrupt(running, report)
        raise
    return ends


def threads_of_each(parallel: int) -> int:
    """Of so many runs at a time: their share of the processors, and no more than OMP_NUM_THREADS where that is set."""
    share = max(1, (os.cpu_count() or 1) // parallel)
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(wanted)) if wanted.isdecimal() and int(wanted) else share


def _start(job: Job, threads: int) -> subprocess.Popen[bytes]:
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    with open_appending(job.log) as log:
        # A session of its own: Ctrl-C reaches this process, which passes it on once. The pipe ends with this process,
        # also if that is killed, and the run with the pipe.
        return subprocess.Popen(
            _command(job),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )


def _close(process: subprocess.Popen[bytes]) -> int:
    """Let go of a process that has ended; returns its status."""
    process.communicate()
    return process.returncode


def _interrupt(running: Mapping[Job, subprocess.Popen[bytes]], report: Report) -> None:
    for process in running.values():
        process.send_signal(signal.SIGINT)
    limit = time.monotonic() + _PATIENCE
    for job, process in running.items():
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
        _close(process)
        report(job, "finished" if job.finished else "interrupted")


def _command(job: Job) -> list[str]:
    return [sys.executable, "-m", "remix.experiments.sweep_runners", *job.words]


def _be_a_job() -> None:
    def interrupt_at_the_end() -> None:
        while os.read(0, 1):  # nobody writes
            pass
        _thread.interrupt_main()

    threading.Thread(target=interrupt_at_the_end, daemon=True).start()
    runpy.run_module("remix", run_name="__main__", alter_sys=True)


def run_on_slurm(
    jobs: Sequence[Job],
    parallel: int,
    report: Report,
    *,
    options: Sequence[str] = (),
    cluster: str = "slurm",
) -> dict[str, Status]:
    """Submit what is not finished, at most ``parallel`` at a time, and wait.

    A run that crashed goes on from its checkpoint, once; one that failed by itself or was refused does not.

    Args:
        jobs: in the order in which they are submitted. Their folders must lie on a shared disk.
        parallel: how many run at a time.
        report: called when a job's status changes.
        options: words such as ``timeout_min=600`` or ``slurm_partition=gpu``, as submitit names them.
        cluster: "slurm", or "local" for a trial of the same path without a cluster.

    Returns:
        how every job ended, by name.

    Raises:
        SettingError: if submitit is not installed, or does not know an option.

    """
    executor = _executor(jobs, parallel, options, cluster)
    ends: dict[str, Status] = {job.name: "finished" for job in jobs if job.finished}
    waiting = [job for job in jobs if not job.finished]
    for _ in range(_TRIES):
        handles = executor.map_array(_execute, [job.words for job in waiting])
        submitted = dict(zip(waiting, handles, strict=True))
        for job in waiting:
            report(job, "runs")
        while submitted:
            for job in [job for job, handle in submitted.items() if handle.done()]:
                code = _status(submitted.pop(job))
                ends[job.name] = "finished" if job.finished else _ENDS.get(code, "crashed")
                report(job, ends[job.name])
            time.sleep(_BETWEEN_LOOKS_AT_A_CLUSTER)
        waiting = [job for job in waiting if ends[job.name] == "crashed"]
        if not waiting:
            break
    return ends


def _status(handle: Any) -> int:
    """How the command of a job ended; -1 where the job itself did not come to its end."""
    return -1 if handle.exception() is not None else int(handle.result())


def _executor(jobs: Sequence[Job], parallel: int, options: Sequence[str], cluster: str) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise SettingError("the cluster needs submitit: pip install 'remix-dfcil[slurm]'") from error
    values: dict[str, Any] = {"slurm_array_parallelism": parallel}
    for word in options:
        key, sign, value = word.partition("=")
        if not sign:
            raise SettingError(f"--slurm takes words such as timeout_min=600, got {word!r}")
        values[key] = int(value) if value.isdigit() else value
    try:
        executor = submitit.AutoExecutor(folder=jobs[0].folder.parent / "slurm", cluster=cluster)
        executor.update_parameters(name="remix", **values)
    except (NameError, TypeError, ValueError, RuntimeError) as error:
        raise SettingError(f"the cluster refuses: {str(error).splitlines()[0]}") from error
    return executor


def _execute(words: Sequence[str]) -> int:
    return subprocess.call([sys.executable, "-m", "remix", *words])


if __name__ == "__main__":
    _be_a_job()
