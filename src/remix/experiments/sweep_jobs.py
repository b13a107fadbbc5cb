"""The runs of a sweep: every combination of the given settings and seeds, each with its own folder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remix.experiments.run_config import RunConfig, resolve
from remix.experiments.run_directory import RunDirectory
from remix.support.settings import SettingError

__all__ = ["Job", "make_job", "parse_seeds", "run_name", "sweep_jobs"]


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        name: shown, and the name of its folder.
        folder: of the run.
        words: the command that does it, without the interpreter; it goes on where the run stands.

    """

    name: str
    folder: Path
    words: tuple[str, ...]

    @property
    def finished(self) -> bool:
        """Whether its result is there."""
        return RunDirectory(self.folder).finished


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
    told = [
        _file_name(key.rpartition(".")[2] + sign + value) for key, sign, value in (w.partition("=") for w in settings)
    ]
    return "-".join([Path(preset).stem, method, *told, f"seed{seed}"])


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
    return Job(folder.name, folder, tuple(words))


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


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "=.+_" else "_" for letter in text)
