"""Claims that the paper's own numbers decide, by arithmetic."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

from benchmarks.claims.claim import PUBLISHED_NUMBERS, Claim, Finding, Verdict
from benchmarks.claims.files import Results
from benchmarks.claims.seeds import judge
from remix.experiments.paired import spread

POINT = 1.0  # an accuracy nearer than this is taken for the same quantity
CURVES = "curves, CIFAR-100 in ten tasks"


def _gains(results: Results) -> list[tuple[str, float]]:
    table = results.published["table 1"]
    pairs = zip(table["columns"], table["REMIX"], table["PMI"], strict=True)
    return [(name, remix - pmi) for name, remix, pmi in pairs]


def _last(results: Results, method: str) -> dict[int, float]:
    """Last accuracy of the plotted runs, numbered as they come."""
    return dict(enumerate(fmean(row) for row in results.published[CURVES][method]["last rows"]))


def _metric_label(results: Results) -> Finding:
    curves = results.published[CURVES]
    column = curves["column"]
    name = results.published["table 1"]["columns"][column]
    measured, wrong = [], True
    for method in ("REMIX", "PMI"):
        printed = results.published["table 1"][method][column]
        last = fmean(_last(results, method).values())
        average = fmean(curves[method]["after each task"])
        measured.append(
            f"{method}, {name}: the published accuracies give a last accuracy of {last:.2f} and an average incremental "
            f"accuracy of {average:.2f}. The table prints {printed:.2f}."
        )
        wrong = wrong and abs(printed - last) < POINT < abs(printed - average)
    return Finding(
        (*measured, "So Table 1 is to be compared with last accuracy. Every number printed by REMIX names its metric."),
        Verdict.WRONG_AS_STATED if wrong else Verdict.HOLDS,
        "The printed numbers are last accuracies." if wrong else "The printed numbers are as labelled.",
        PUBLISHED_NUMBERS,
    )


def _efficiency_label(results: Results) -> Finding:
    table, efficiency = results.published["table 1"], results.published["efficiency, ResNet-32"]
    named = efficiency["column its caption names"]
    methods = ("PMI", "REMIX")
    found = [
        index
        for index in range(len(table["columns"]))
        if all(table[m][index] == efficiency[m]["last"] for m in methods)
    ]
    wrong = found != [named]
    printed = " and ".join(f"{m} {efficiency[m]['last']:.2f}" for m in methods)
    expected = " and ".join(f"{table[m][named]:.2f}" for m in methods)
    return Finding(
        (
            f"The efficiency table prints {printed}. In Table 1 the column {table['columns'][named]} has {expected}; "
            f"the printed numbers are those of {', '.join(table['columns'][index] for index in found) or 'no column'}.",
            "It is therefore not known which runs the times and the memory belong to.",
        ),
        Verdict.WRONG_AS_STATED if wrong else Verdict.HOLDS,
        "The accuracies belong to another number of tasks." if wrong else "The accuracies are those of the caption.",
        PUBLISHED_NUMBERS,
    )


def _efficiency_caption(results: Results) -> str:
    column = results.published["efficiency, ResNet-32"]["column its caption names"]
    name = results.published["table 1"]["columns"][column]
    return f"Time, memory and accuracy of the efficiency table are those of {name}."


def _gains_grow(results: Results) -> Finding:
    gains = _gains(results)
    half = len(gains) // 2
    rising = [all(a[1] < b[1] for a, b in pairwise(part)) for part in (gains[:half], gains[half:])]
    return Finding(
        ("Differences in Table 1: " + "; ".join(f"{name} {gain:+.2f}" for name, gain in gains) + ".",),
        Verdict.HOLDS if all(rising) else Verdict.WRONG_AS_STATED,
        "They rise on both data sets."
        if all(rising)
        else f"They rise on {sum(rising)} of {len(rising)} data sets only.",
        PUBLISHED_NUMBERS,
    )


def _largest_gain(results: Results) -> Finding:
    _, gain = _largest(results)
    judgement = judge(_last(results, "REMIX"), _last(results, "PMI"), ("REMIX", "PMI"))
    if judgement is None:
        raise ValueError("the published runs have no seed in common")
    confirmed = judgement.sign > 0 and judgement.mean >= gain
    return Finding(
        (
            f"{gain:+.2f} points compares runs of the authors with a number taken from another paper. The runs of both "
            "methods that the authors plotted give the fairer comparison (taken as paired in the order they are "
            "listed):",
            judgement.sentence,
        ),
        Verdict.HOLDS if confirmed else Verdict.NOT_SHOWN,
        "The authors' own runs give as much."
        if confirmed
        else f"The authors' own runs of PMI leave {judgement.mean:+.2f} points.",
        PUBLISHED_NUMBERS,
    )


def _largest(results: Results) -> tuple[str, float]:
    return max(_gains(results)[: len(_gains(results)) // 2], key=lambda one: one[1])


def _deviation(results: Results) -> Finding:
    values = list(_last(results, "REMIX").values())
    runs = results.published["runs in table 1"]
    printed = results.published["standard deviation in table 1"]["REMIX"][results.published[CURVES]["column"]]
    own = spread(values)
    # Two more runs change the deviation least when they fall on the mean of the others.
    least = spread([*values, *[own.mean] * (runs - len(values))]).std
    if own.std is None or least is None:
        raise ValueError("one run has no deviation")
    fits = least <= printed
    return Finding(
        (
            f"The {len(values)} plotted runs end at {', '.join(f'{value:.2f}' for value in values)}: standard "
            f"deviation {own.std:.2f}. Any {runs} runs that contain these have at least {least:.2f}; the table prints "
            f"{printed:.2f}.",
            "Either the number is something else than a standard deviation, or the plotted runs are not among those "
            "of the table. Do not use it as a tolerance.",
        ),
        Verdict.HOLDS if fits else Verdict.NOT_SHOWN,
        "The numbers agree." if fits else "The published numbers do not fit together.",
        PUBLISHED_NUMBERS,
    )


def _no_tuning(results: Results) -> Finding:
    weights = results.published["lambda"]
    grid, chosen = weights["grid, ResNet-32"], weights["chosen, ResNet-32"]
    tuned = len(set(chosen)) > 1
    return Finding(
        (
            f"By the paper's own appendix the weight of the new term was searched for among {len(grid)} values in each "
            f"of {len(chosen)} settings, and {len(set(chosen))} different values were taken "
            f"({', '.join(f'{value:g}' for value in chosen)}). PMI has no such choice.",
            "No validation images are mentioned, nor are any split off in the published code. What the best of so many "
            "values gains by chance was not measured.",
        ),
        Verdict.WRONG_AS_STATED if tuned else Verdict.HOLDS,
        "One weight was tuned for each setting, for one of the two methods."
        if tuned
        else "One value served everywhere.",
        PUBLISHED_NUMBERS,
    )


def _clip_consistent(results: Results) -> Finding:
    table = results.published["table 2"]
    rows = zip(table["columns"], table["REMIX + MoE-Adapter"], table["PMI + MoE-Adapter"], strict=True)
    gains = [(name, remix - pmi) for name, remix, pmi in rows]
    lower = [name for name, gain in gains if gain < 0]
    return Finding(
        (
            "Differences in the table: "
            + "; ".join(f"{name} {gain:+.2f}" for name, gain in gains)
            + ". No spread over runs is given.",
        ),
        Verdict.WRONG_AS_STATED if lower else Verdict.NOT_SHOWN,
        f"Lower in {len(lower)} of {len(gains)}: {', '.join(lower)}."
        if lower
        else "Without a spread nothing is known about chance.",
        PUBLISHED_NUMBERS,
    )


CLAIMS = (
    Claim(
        "metric-label",
        "Table 1 shows average incremental accuracy",
        lambda results: "The numbers of the main table are average incremental accuracies.",
        "Table 1 and the same table with standard deviations",
        None,
        None,
        (),
        _metric_label,
    ),
    Claim(
        "efficiency-label",
        "The caption of the efficiency table",
        _efficiency_caption,
        "Appendix on computational efficiency, ResNet-32 table",
        None,
        None,
        (),
        _efficiency_label,
    ),
    Claim(
        "gains-grow",
        "The gain grows with the number of tasks",
        lambda results: "The advantage over PMI becomes larger with more tasks, on both data sets.",
        "Experiments, results on ResNet-32",
        None,
        None,
        (),
        _gains_grow,
    ),
    Claim(
        "largest-gain",
        "The largest gain over PMI",
        lambda results: (
            f"The largest gain over PMI on CIFAR-100 is {_largest(results)[1]:+.2f} points ({_largest(results)[0]})."
        ),
        "Experiments, results on ResNet-32",
        None,
        None,
        (),
        _largest_gain,
    ),
    Claim(
        "deviation",
        "The spread over runs",
        lambda results: (
            f"The numbers after the ± signs are standard deviations over {results.published['runs in table 1']} runs."
        ),
        "Appendix, Table 1 with standard deviations",
        None,
        None,
        (),
        _deviation,
    ),
    Claim(
        "no-tuning",
        "The gains do not come from tuning",
        lambda results: "The gains come without changed settings, so from the covariance rather than from tuning.",
        "Experiments, results on ResNet-32",
        None,
        None,
        (),
        _no_tuning,
    ),
    Claim(
        "clip-consistent",
        "With CLIP every data set and metric improves",
        lambda results: "With a CLIP backbone REMIX improves on PMI on both data sets and in both metrics.",
        "Experiments, results on ViT backbone",
        None,
        None,
        (),
        _clip_consistent,
    ),
)
