"""Many runs: every combination of settings and seeds, each with its own folder; and what is told while they go on."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remix.experiments.config import RunConfig, resolve
from remix.experiments.run_directory import RunDirectory
from remix.support.files import open_regular
from remix.support.settings import SettingError

__all__ = ["Job", "Report", "Start", "Status", "finish_jobs", "make_job", "parse_seeds", "run_name", "sweep_jobs"]

Status = Literal["runs", "finished", "crashed", "failed", "refused", "interrupted"]
_TAIL = 4096  # bytes of a log in which its last line is looked for


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        folder: of the run.
        words: the command that does it, without the interpreter; it goes on where the run stands.

    """

    folder: Path
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """Shown, and the name of its folder."""
        return self.folder.name

    @property
    def log(self) -> Path:
        """Where its output goes: beside its folder, since a folder that is not empty holds a run."""
        return self.folder.with_name(f"{self.name}.log")

    @property
    def finished(self) -> bool:
        """Whether its result is there."""
        return RunDirectory(self.folder).finished


Report = Callable[[Job, Status], None]
"""Called when the status of a job changes."""

Start = Callable[[Sequence[Job], int, Report], dict[str, Status]]
"""Runs the jobs that are not finished, so many at a time; returns how every job ended, by name."""


def sweep_jobs(
    preset: str, sets: Sequence[str], seeds: Sequence[int], out: str | Path, data: str | None, validation: bool = False
) -> list[Job]:
    """Every combination, seeds innermost. Settings are checked before anything runs.

    Args:
        preset: as of `remix run`.
        sets: words ``key=a,b,c``; the values are separated by commas that stand in no bracket.
        seeds: of every combination.
        out: the folder that holds the folders of the runs.
        data: folder of the data sets.
        validation: test on a part of the training images.

    Raises:
        SettingError: for a setting that does not exist, or a folder with a run of other settings.

    """
    axes = [_axis(word) for word in sets]
    varied = [key for key, values in axes if len(values) > 1]
    jobs = []
    for chosen in itertools.product(*(values for _, values in axes)):
        settings = dict(zip((key for key, _ in axes), chosen, strict=True))
        for seed in seeds:
            method = settings.get("method")
            words = tuple(f"{key}={value}" for key, value in settings.items() if key != "method")
            config = resolve(preset, method=method, seed=seed, validation=validation, assignments=words)
            told = [f"{key}={settings[key]}" for key in varied if key != "method"]
            folder = Path(out) / run_name(preset, config.method, told, seed)
            jobs.append(
                make_job(config, folder, preset, method, seed, data=data, validation=validation, assignments=words)
            )
    if len({job.name for job in jobs}) < len(jobs):
        raise SettingError("a seed or a value is given twice")
    return jobs


def run_name(preset: str, method: str, settings: Sequence[str], seed: int) -> str:
    """The name of a run's folder: preset, method, the settings (words ``key=value``) that set it apart, seed."""
    told = [word.partition("=")[0].rpartition(".")[2] + "".join(word.partition("=")[1:]) for word in settings]
    safe = ["".join(letter if letter.isalnum() or letter in "=.+_" else "_" for letter in word) for word in told]
    path = Path(preset)
    name = path.stem if path.suffix in (".yaml", ".yml") else path.absolute().name
    return "-".join([name, method, *safe, f"seed{seed}"])


def make_job(
    config: RunConfig,
    folder: Path,
    preset: str,
    method: str | None,
    seed: int,
    *,
    data: str | None,
    validation: bool = False,
    assignments: Sequence[str] = (),
) -> Job:
    """A run in this folder, whose name it bears.

    Args:
        config: the run, as `resolve` makes it of what follows.
        folder: of the run.
        preset, method, seed, data, validation, assignments: as they are typed for `remix run`.

    Raises:
        RunDirectoryError: if the folder holds a run of other settings.

    """
    RunDirectory(folder).check(config, resume=True)
    words = ["run", preset, "--seed", str(seed), "--out", str(folder), "--resume"]
    if method is not None:
        words += ["--method", method]
    if data is not None:
        words += ["--data", data]
    if validation:
        words.append("--validation")
    if assignments:
        words += ["--set", *assignments]
    return Job(folder, tuple(words))


def parse_seeds(text: str) -> list[int]:
    """Seeds such as ``0-4`` or ``0,2,7``.

    Raises:
        SettingError: for anything else.

    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise SettingError(f"--seeds takes numbers such as 0-4 or 0,2,7, got {text!r}")
        found = range(int(first), int(last if dash else first) + 1)
        if not found:
            raise SettingError(f"--seeds: {part.strip()!r} runs backwards")
        seeds += found
    return seeds


def _axis(word: str) -> tuple[str, list[str]]:
    key, sign, text = word.partition("=")
    if not sign or not key.strip():
        raise SettingError(f"--set takes key=value or key=a,b,c, got {word!r}")
    values, depth = [""], 0
    for letter in text:
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            values.append("")
        else:
            values[-1] += letter
    if not all(value.strip() for value in values):
        raise SettingError(f"--set {key.strip()}: a value is missing in {text!r}")
    return key.strip(), [value.strip() for value in values]


def finish_jobs(jobs: Sequence[Job], parallel: int, tell: Callable[[str], None], start: Start) -> list[str]:
    """Run what is not finished.

    Args:
        jobs: in the order in which they begin.
        parallel: how many at a time.
        tell: given a line whenever one begins or ends, with how many are done and how long the rest will take.
        start: where they run, see `remix.experiments.sweep_runners`.

    Returns:
        a sentence for each that is not finished, with its last words.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the runs are saved.

    """
    ended = 0
    begun: dict[str, float] = {}
    took: list[float] = []  # seconds of the runs that were finished here

    def report(job: Job, status: Status) -> None:
        nonlocal ended
        if status == "runs":
            begun[job.name] = time.monotonic()
            tell(f"  {job.name} begins, log in {job.log}")
            return
        rest = ""
        if status == "finished":
            ended += 1
            if job.name in begun:
                took.append(time.monotonic() - begun[job.name])
                left = sum(took) / len(took) * (len(jobs) - ended) / parallel
                rest = f", {_about(left)} left" if ended < len(jobs) else ""
        tell(f"  {job.name} {status}: {ended} of {len(jobs)} finished{rest}")

    ends = start(jobs, parallel, report)
    bad = [job for job in jobs if ends[job.name] != "finished"]
    return [f"{job.name} {ends[job.name]}: {_last_line(job.log)} ({job.log})" for job in bad]


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(10, round(seconds, -1)):.0f} s"


def _last_line(log: Path) -> str:
    try:
        with open_regular(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").split("\n")
    except OSError:
        return "no log"
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else "it said nothing"
