"""Claims about the accuracy on single tasks."""

from __future__ import annotations

from statistics import fmean

from benchmarks.claims.claim import MINI, NOTHING, PAPER, Claim, Finding, Verdict
from benchmarks.claims.files import Missing, Results
from benchmarks.claims.own_numbers import CURVES
from benchmarks.claims.seeds import Judgement, holds_at, judge, presets_of, scale_of, why_not

RETENTION = "reproduce/retention.csv"
OLD, NEW = "old_task_accuracy", "new_task_accuracy"
FIRST_TASK_PRESET = "cifar100-10"
NEAR = 1.5  # points around the published first-task accuracy


def _mean_over_tasks(rows: list[dict[str, str]], column: str, preset: str, method: str) -> dict[int, float]:
    """Mean over the later tasks, by seed; the first task has no old ones."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (row["preset"], row["method"]) == (preset, method):
            found.setdefault(int(row["seed"]), []).append(float(row[column]))
    return {seed: fmean(values) for seed, values in found.items()}


def _retention(results: Results) -> Finding:
    curves = results.published[CURVES]
    pairs = list(zip(curves["REMIX"]["old tasks"], curves["PMI"]["old tasks"], strict=True))
    higher = sum(remix > pmi for remix, pmi in pairs)
    measured = [
        f"The authors' curves: REMIX is higher on old tasks after {higher} of {len(pairs)} tasks (means over seeds)."
    ]
    try:
        rows = results.rows(RETENTION, "seed", "after_task", OLD, NEW)
    except Missing as reason:  # the authors' curves are there all the same
        return Finding(tuple(measured), Verdict.NOT_SHOWN, str(reason), NOTHING)
    scales: list[str] = []
    problems: list[str] = []
    for preset in presets_of(rows):
        judged: dict[str, Judgement] = {}
        for column, words in ((OLD, "old"), (NEW, "new")):
            values = [_mean_over_tasks(rows, column, preset, method) for method in ("remix", "pmi")]
            judgement = judge(*values, ("REMIX", "PMI"), f"points on {words} tasks, mean over later tasks")
            if judgement is not None:
                judged[words] = judgement
                measured.append(f"`{preset}`: {judgement.sentence}")
        if len(judged) < 2:
            continue
        scales.append(scale_of(preset))
        if judged["old"].sign <= 0:
            problems.append(f"`{preset}`, old tasks: {'lower' if judged['old'].sign < 0 else why_not(judged['old'])}")
        if judged["new"].sign < 0:
            problems.append(f"`{preset}`, new tasks: lower")
    if not scales:
        raise Missing("No runs yet: no preset has both methods with one seed.")
    scale = PAPER if {*scales} == {PAPER} else MINI
    return Finding(
        tuple(measured),
        Verdict.NOT_SHOWN if problems else holds_at(scale),
        "; ".join(problems) + "." if problems else "Higher on old tasks beyond chance, not lower on new ones.",
        scale,
    )


def _first_task(results: Results) -> Finding:
    published = results.published[CURVES]
    target = fmean(published[method]["new task"][0] for method in ("REMIX", "PMI"))
    rows = [row for row in results.rows(RETENTION, "seed", "after_task", NEW) if row["preset"] == FIRST_TASK_PRESET]
    if not rows:
        raise Missing(f"No runs yet of `{FIRST_TASK_PRESET}`: small presets use another network and fewer epochs.")
    first = min(int(row["after_task"]) for row in rows)
    values = [float(row[NEW]) for row in rows if int(row["after_task"]) == first]
    near = abs(fmean(values) - target) < NEAR
    return Finding(
        (f"`{FIRST_TASK_PRESET}`: {fmean(values):.2f} % over {len(values)} runs; published {target:.2f} %.",),
        Verdict.HOLDS if near else Verdict.NOT_SHOWN,
        f"{'Within' if near else 'Not within'} {NEAR} points.",
        PAPER,
    )


def _first_task_statement(results: Results) -> str:
    curves = results.published[CURVES]
    return (
        f"After the first of ten tasks of CIFAR-100 the network is right on {curves['REMIX']['new task'][0]:.1f} % "
        f"(REMIX) and {curves['PMI']['new task'][0]:.1f} % (PMI) of the test images: the first thing to reproduce."
    )


CLAIMS = (
    Claim(
        "retention",
        "Better on old tasks, as good on new ones",
        lambda results: "REMIX is consistently more accurate than PMI on old tasks, and about equal on the new one.",
        "Experiments, learning capacity and retention",
        "remix reproduce retention --scale mini --data DIR",
        "CIFAR-100 and hours",
        (RETENTION,),
        _retention,
    ),
    Claim(
        "first-task",
        "Accuracy of the first task",
        _first_task_statement,
        "Curves published with the code, CIFAR-100 in ten tasks",
        "remix reproduce retention --scale paper --data DIR",
        "CIFAR-100 and a GPU",
        (RETENTION,),
        _first_task,
    ),
)
