"""Runs by what they were run on, by method, by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remix.experiments.compare import Comparison, method_rank, protocol, variant_names
from remix.report.reading import RunFacts
from remix.support.settings import SettingError

__all__ = ["Group", "group_runs"]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs on the same data with the same network and training.

    Attributes:
        name: of the data, and what sets the group apart from others of the same data.
        variants: runs by method (one that ran with several settings is there once for each), then by seed.
        comparison: of the finished ones, None if there are none.
        remarks: what a reader of the numbers should know.

    """

    name: str
    variants: dict[str, dict[int, RunFacts]]
    comparison: Comparison | None
    remarks: tuple[str, ...]

    @property
    def tasks(self) -> int:
        """The same for all runs."""
        return next(iter(next(iter(self.variants.values())).values())).tasks

    @property
    def runs(self) -> list[RunFacts]:
        """All of them."""
        return [run for seeds in self.variants.values() for run in seeds.values()]


def group_runs(runs: Sequence[RunFacts]) -> tuple[list[Group], list[str]]:
    """Sort runs into groups; also what is to be said about all of them.

    Raises:
        SettingError: if two runs are the same in everything, the seed included.

    """
    names = variant_names([(run.config["data"]["name"], protocol(run.config)) for run in runs])
    groups = [
        _group(name, [run for run, of in zip(runs, names, strict=True) if of == name]) for name in dict.fromkeys(names)
    ]
    remarks = []
    if len(groups) > 1:
        listed = "; ".join(group.name for group in groups)
        remarks.append(
            f"these runs are of {len(groups)} different presets (data, network or training): {listed}. "
            "Numbers of one cannot be compared with those of another, so each has its own part of the page."
        )
    return groups, remarks


def _group(name: str, runs: Sequence[RunFacts]) -> Group:
    names = variant_names([(run.config["method"], run.config["settings"]) for run in runs])
    found: dict[str, dict[int, RunFacts]] = {}
    for run, variant in zip(runs, names, strict=True):
        same = found.setdefault(variant, {}).get(run.seed)
        if same is not None:
            raise SettingError(f"{same.folder} and {run.folder} are both {variant} with seed {run.seed}; name one")
        found[variant][run.seed] = run
    variants = {variant: dict(sorted(found[variant].items())) for variant in sorted(found, key=method_rank)}
    return Group(name, variants, _comparison(variants), (*_unfinished(runs), *_missing_seeds(variants)))


def _comparison(variants: Mapping[str, Mapping[int, RunFacts]]) -> Comparison | None:
    finished = {
        variant: {seed: run.summary for seed, run in seeds.items() if run.summary is not None}
        for variant, seeds in variants.items()
    }
    summaries = {variant: seeds for variant, seeds in finished.items() if seeds}
    folders = [variants[variant][seed].folder for variant, seeds in summaries.items() for seed in seeds]
    return Comparison(summaries, tuple(folders), ()) if summaries else None


def _unfinished(runs: Sequence[RunFacts]) -> list[str]:
    open_runs = [f"{run.folder} ({run.state})" for run in runs if run.summary is None]
    if not open_runs:
        return []
    return [f"not finished, so not part of the means in the table of results: {'; '.join(open_runs)}"]


def _missing_seeds(variants: Mapping[str, Mapping[int, RunFacts]]) -> list[str]:
    every = sorted({seed for seeds in variants.values() for seed in seeds})
    missing = {variant: [seed for seed in every if seed not in seeds] for variant, seeds in variants.items()}
    return [
        f"{variant} was not run with seed {', '.join(map(str, seeds))}, which other methods were: differences are "
        "those over common seeds, means are over the seeds that each has"
        for variant, seeds in missing.items()
        if seeds
    ]
