"""Differences between methods over seeds: what may be said, and whether it counts as shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scipy import stats

from benchmarks.claims.claim import MINI, PAPER, Verdict
from remix.experiments.paired import CONFIDENCE, PairedDifference, paired_difference

# From so many seeds on the bootstrap interval decides alone (see remix.experiments.paired); below, Student's too.
ENOUGH_SEEDS = 6
FEWEST_SEEDS = 3
PAPER_PRESETS = frozenset(
    {"cifar100-5", "cifar100-10", "cifar100-20", "tiny-5", "tiny-10", "tiny-20"}
    | {"cifar100-clip-10", "cub200-clip-10"}
)


@dataclass(frozen=True)
class Judgement:
    """A sentence about a difference, and its sign if it is shown: +1, -1, or 0 for none shown."""

    sentence: str
    sign: int
    seeds: int
    mean: float


def scale_of(preset: str) -> str:
    """Whether a preset is the paper's protocol or a small one."""
    return PAPER if preset in PAPER_PRESETS else MINI


def holds_at(scale: str) -> Verdict:
    """The verdict of a claim that was confirmed at a scale."""
    return Verdict.HOLDS if scale == PAPER else Verdict.HOLDS_AT_MINI_SCALE


def judge(
    first: Mapping[int, float], second: Mapping[int, float], names: tuple[str, str], unit: str = "points"
) -> Judgement | None:
    """The paired difference of two methods, or None if they have no seed in common."""
    if not first.keys() & second.keys():
        return None
    difference = paired_difference(first, second)
    sentence = difference.sentence(*names, unit)
    count, mean = difference.spread.count, difference.spread.mean
    if difference.interval is None or difference.interval[0] <= 0 <= difference.interval[1]:
        return Judgement(sentence, 0, count, mean)
    sign = 1 if mean > 0 else -1
    if count < ENOUGH_SEEDS:
        low, high = student_interval(difference)
        sentence += f" Student's interval, which is made for few seeds: {low:+.2f} to {high:+.2f}."
        if count < FEWEST_SEEDS or low <= 0 <= high:
            sign = 0
    return Judgement(sentence, sign, count, mean)


def student_interval(difference: PairedDifference) -> tuple[float, float]:
    """Student's interval of the mean difference: wide when seeds are few."""
    count, mean, std = difference.spread.count, difference.spread.mean, difference.spread.std
    if std is None:
        raise ValueError("one difference has no interval")
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * std / count**0.5
    return mean - half, mean + half


def by_seed(rows: list[dict[str, str]], column: str, **where: str) -> dict[int, float]:
    """Value of a column by seed, of the lines that match; of two lines of one seed the later counts."""
    chosen = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return {int(row["seed"]): float(row[column]) for row in chosen}


def presets_of(rows: list[dict[str, str]]) -> list[str]:
    """The presets of a table in the order of their first line."""
    return list(dict.fromkeys(row["preset"] for row in rows))


def why_not(judgement: Judgement) -> str:
    """Why a difference does not count as shown."""
    if judgement.seeds == 1:
        return f"{judgement.mean:+.1f}, one seed"
    if judgement.seeds < FEWEST_SEEDS:
        return f"{judgement.mean:+.1f}, {judgement.seeds} seeds, too few to tell it from chance"
    return f"{judgement.mean:+.1f} over {judgement.seeds} seeds, within the noise"
