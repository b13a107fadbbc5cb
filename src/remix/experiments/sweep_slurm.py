"""Jobs of a sweep on a Slurm cluster, through submitit."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from remix.experiments.sweep_jobs import Job
from remix.experiments.sweep_local import Status
from remix.support.settings import SettingError

__all__ = ["run_on_slurm"]

_BETWEEN_LOOKS = 2.0  # seconds


def run_on_slurm(
    jobs: Sequence[Job],
    parallel: int,
    report: Callable[[Job, Status], None],
    retries: int = 1,
    *,
    options: Sequence[str] = (),
    cluster: str = "slurm",
) -> dict[str, Status]:
    """Submit what is not finished, at most ``parallel`` at a time, and wait.

    Args:
        jobs: in the order in which they are submitted. Their folders must lie on a shared disk.
        parallel: how many run at a time.
        report: called when a job's status changes.
        retries: of a crashed run, which goes on from its checkpoint.
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
    for attempt in range(retries + 1):
        handles = executor.map_array(_execute, [job.words for job in waiting])
        submitted = dict(zip(waiting, handles, strict=True))
        for job in waiting:
            report(job, "runs")
        while submitted:
            for job in [job for job, handle in submitted.items() if handle.done()]:
                del submitted[job]
                ends[job.name] = "finished" if job.finished else "crashed"
                report(job, ends[job.name])
            time.sleep(_BETWEEN_LOOKS)
        waiting = [job for job in waiting if not job.finished]
        if not waiting or attempt == retries:
            break
    return ends


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
    folder = jobs[0].folder.parent / "slurm" if jobs else Path("slurm")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(name="remix", **values)
    except (NameError, TypeError, ValueError, RuntimeError) as error:
        raise SettingError(f"the cluster refuses: {str(error).splitlines()[0]}") from error
    return executor


def _execute(words: Sequence[str]) -> int:
    return subprocess.call([sys.executable, "-m", "remix.cli", *words])
