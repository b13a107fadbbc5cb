"""The runs that a table or figure is made of: planned, found among those that are there, and run if they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remix.experiments.compare import Comparison, runs_in
from remix.experiments.config import RunConfig, build_config, differences, resolve
from remix.experiments.estimate import HOW_ESTIMATED, Estimate
from remix.experiments.plan import load_tasks
from remix.experiments.run_directory import RunDirectory
from remix.experiments.sweep import Job, finish_jobs, make_job, parse_seeds, run_name
from remix.experiments.sweep_runners import run_locally
from remix.methods import method_class
from remix.reproduce.given_rows import Row, read_rows, summary_of
from remix.reproduce.targets import Listener, Reproduction
from remix.support.display import duration
from remix.support.settings import SettingError
from remix.support.text import printable

__all__ = ["NeededRun", "Variant", "benchmarks", "comparison", "need_runs"]

TAKES = ("data", "runs", "rows", "seeds", "jobs", "finished", "dry_run")
"""Options of the targets that are made of runs."""

_SEEDS = {"mini": "0-2", "paper": "1-5"}


@dataclass(frozen=True)
class Variant:
    """A method with its settings.

    Attributes:
        preset: whose settings count.
        method: of the run.
        settings: that differ from the preset, as words ``key=value``.
        name: in tables; that of the method by default.
        benchmark: runs of one benchmark stand in one table; that of the preset by default.
        seeds: where none are asked for; those of the scale by default.

    """

    preset: str
    method: str
    settings: tuple[str, ...] = ()
    name: str = ""
    benchmark: str = ""
    seeds: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.method)
        object.__setattr__(self, "benchmark", self.benchmark or Path(self.preset).stem)


@dataclass(frozen=True)
class NeededRun:
    """A run of a variant: its seed, its configuration, the job that makes it, and the rows that stand for it if the job
    is not finished.
    """

    variant: Variant
    seed: int
    config: RunConfig
    job: Job
    rows: tuple[Row, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return bool(self.rows) or self.job.finished

    def summary(self) -> dict[str, Any]:
        """Its result, of rows as much as they say. Raises RunDirectoryError if there is none."""
        return summary_of(self.rows[-1]) if self.rows else RunDirectory(self.job.folder).read_summary()


def need_runs(
    wanted: Reproduction, variants: Sequence[Variant], listener: Listener, columns: Sequence[str] = ()
) -> tuple[list[NeededRun], bool]:
    """Tell the plan, and run what is not finished.

    A run in the folder of runs that has the same settings is taken, whatever its folder is called and whichever
    command made it. For one that is not finished there, rows of ``wanted.rows`` with its preset, name and seed are.

    Args:
        wanted: options of the target.
        variants: whose runs are needed.
        listener: told the plan.
        columns: of numbers that a row must have to stand for a run.

    Returns:
        the runs that are finished, and whether these are all. None with ``wanted.dry_run``.

    Raises:
        ValueError: for what the person can set right, before anything runs.
        KeyboardInterrupt: after Ctrl-C, when the runs are saved.

    """
    parallel = 1 if wanted.jobs is None else wanted.jobs
    if parallel < 1:
        raise ValueError(f"--jobs must be at least 1, got {parallel}")
    if wanted.finished and wanted.dry_run:
        raise ValueError("--finished takes the runs that are there, --dry-run only shows the plan: give one of them")
    place = Path(wanted.runs) if wanted.runs else wanted.out.parent / "runs"
    there = _existing(place)
    if wanted.seeds and len(set(parse_seeds(wanted.seeds))) < len(parse_seeds(wanted.seeds)):
        raise ValueError(f"--seeds {wanted.seeds}: a seed is given twice")
    given = read_rows(wanted.rows, columns) if wanted.rows else {}
    runs = []
    for variant in variants:
        for seed in parse_seeds(wanted.seeds or variant.seeds or _SEEDS[wanted.scale]):
            run = _needed(variant, seed, wanted, place, there)
            rows = given.get((variant.benchmark, variant.name, seed, run.config.data.tested_on), [])
            runs.append(run if run.job.finished else replace(run, rows=tuple(rows)))
    done = [run for run in runs if run.finished]
    where = f"{place}"
    if wanted.rows:
        count = sum(bool(run.rows) for run in runs)
        listener.say(f"{count} of {len(runs)} runs are rows of {printable(wanted.rows)}")
        where += " or such rows"
    if wanted.finished:
        if not done:
            raise ValueError(
                f"none of the {len(runs)} runs that this needs is finished in {where}; without --finished they are run"
            )
        listener.say(f"{len(done)} of {len(runs)} runs are finished in {where}; the others are left out")
        return done, len(done) == len(runs)
    left = [run for run in runs if not run.finished]
    if left:
        _tell_plan(runs, parallel, place, wanted.data, listener)
    if wanted.dry_run:
        if not left:
            listener.say(f"all {len(runs)} runs are finished in {where}")
        return [], True
    for run in {repr(run.config.data): run for run in left}.values():
        load_tasks(run.config.data, wanted.data)  # says what is missing before anything runs
    jobs = [run.job for run in runs if not run.rows]
    failed = finish_jobs(jobs, parallel, listener.say, run_locally) if left else []
    for sentence in failed:
        listener.fail(sentence)
    return [run for run in runs if run.finished], not failed


def benchmarks(runs: Sequence[NeededRun]) -> dict[str, list[NeededRun]]:
    """Runs by benchmark, in the order in which these come."""
    found: dict[str, list[NeededRun]] = {}
    for run in runs:
        found.setdefault(run.variant.benchmark, []).append(run)
    return found


def comparison(runs: Sequence[NeededRun]) -> Comparison:
    """Finished runs of one benchmark by name of the variant and seed."""
    summaries: dict[str, dict[int, dict[str, Any]]] = {}
    for run in runs:
        summaries.setdefault(run.variant.name, {})[run.seed] = run.summary()
    return Comparison(summaries, tuple(run.job.folder for run in runs if not run.rows), ())


def _needed(
    variant: Variant, seed: int, wanted: Reproduction, place: Path, there: Sequence[tuple[Path, dict[str, Any]]]
) -> NeededRun:
    settings = (*variant.settings, "accelerator=auto") if wanted.scale == "paper" else variant.settings
    config = resolve(variant.preset, method=variant.method, seed=seed, assignments=settings)
    plain = config.to_plain()
    same = next((folder for folder, other in there if not differences(other, plain)), None)
    name = run_name(variant.preset, variant.method, variant.settings, seed)
    job = make_job(
        config, same or place / name, variant.preset, variant.method, seed, data=wanted.data, assignments=settings
    )
    return NeededRun(variant, seed, config, job)


def _existing(place: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Folders with their settings, finished ones first."""
    if not place.is_dir() or not any(place.iterdir()):
        return []
    found = [run for run in runs_in(place) if run.config.is_file()]
    return [(run.path, _completed(run.read_config())) for run in sorted(found, key=lambda run: not run.finished)]


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, with settings that its version did not have yet as they are by default.

    Before settings of a method had names, its defaults were others: then it is left as it is.
    """
    try:
        built = build_config(config)
    except SettingError:
        return config
    unnamed = method_class(built.method).named and "setting" not in config["settings"]
    return config if unnamed else built.to_plain()


def _tell_plan(runs: Sequence[NeededRun], parallel: int, place: Path, data: str | None, listener: Listener) -> None:
    """What is finished, what is left, and how long that will take here."""
    heads = ["benchmark", "method", "seeds", "finished", "minutes each, estimated"]
    rows = []
    estimate = Estimate(data)
    rest = 0.0
    for name, group in benchmarks(runs).items():
        for variant in dict.fromkeys(run.variant for run in group):
            mine = [run for run in group if run.variant == variant]
            left = [run for run in mine if not run.finished]
            minutes = _minutes(mine, estimate) if left else None
            rest += (minutes or 0.0) * len(left)
            seeds = " ".join(str(run.seed) for run in mine)
            cells = [f"{len(mine) - len(left)} of {len(mine)}", "" if minutes is None else f"{minutes:,.1f}"]
            rows.append([name, variant.name, seeds, *cells])
    listener.plan(heads, rows)
    count = sum(not run.finished for run in runs)
    listener.say(
        f"{count} runs to do in {place}/, {parallel} at a time: about {duration(60 * rest / parallel)} on this machine "
        f"(from finished runs of a kind, else {HOW_ESTIMATED})"
    )


def _minutes(runs: Sequence[NeededRun], estimate: Estimate) -> float:
    """Of each of these runs, which differ in the seed only: those of finished ones, else as estimated."""
    done = [float(run.summary().get("processor_minutes", 0)) for run in runs if run.finished]
    return sum(done) / len(done) if any(done) else estimate.minutes(runs[0].config)
