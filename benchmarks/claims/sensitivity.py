"""The claim about the weight of the Laplace term."""

from __future__ import annotations

from statistics import fmean

from benchmarks.claims.claim import MINI, PAPER, Claim, Finding, Verdict
from benchmarks.claims.files import Results
from benchmarks.claims.seeds import FEWEST_SEEDS, by_seed, holds_at, judge, presets_of, scale_of, why_not

FILE = "reproduce/lambda.csv"
AVERAGE, LAST = "average_incremental_accuracy_macro", "last_accuracy_macro"
Values = dict[float, dict[int, float]]  # by weight, then by seed


def _values(rows: list[dict[str, str]], preset: str, column: str) -> Values:
    weights = sorted({row["weight"] for row in rows if row["preset"] == preset}, key=float)
    return {float(weight): by_seed(rows, column, preset=preset, weight=weight) for weight in weights}


def _stable(preset: str, average: Values, bound: float) -> tuple[str, str | None]:
    """A sentence on average incremental accuracy over the weights, and what speaks against the claim."""
    means = [fmean(values.values()) for values in average.values()]
    width, seeds = max(means) - min(means), min(len(values) for values in average.values())
    sentence = f"`{preset}`: average incremental accuracy varies by {width:.2f} points over {len(means)} weights."
    if len(means) == 1 or seeds < FEWEST_SEEDS:
        return sentence, f"`{preset}`: fewer than {FEWEST_SEEDS} seeds for each of several weights"
    if width >= bound:
        return sentence, f"`{preset}`: average incremental accuracy varies by {width:.2f} points, not below {bound}"
    return sentence, None


def _best(preset: str, last: Values, none: dict[int, float]) -> tuple[list[str], str | None]:
    """Sentences on the best weight for last accuracy, and what speaks against there being a clear one."""
    means = {weight: fmean(values.values()) for weight, values in last.items()}
    best, *others = sorted(means, key=lambda weight: -means[weight])
    each = "; ".join(f"{mean:.2f} with {weight:g}" for weight, mean in means.items())
    measured = [f"`{preset}`, last accuracy, %: {each}."]
    name = f"Weight {best:g}"
    without = judge(last[best], none, (name, "no Laplace term"))
    second = judge(last[best], last[others[0]], (name, f"the next best, {others[0]:g}")) if others else None
    measured += [f"`{preset}`: {judgement.sentence}" for judgement in (second, without) if judgement is not None]
    if second is None:
        return measured, f"`{preset}`: there is no second weight with the same seeds"
    return measured, None if second.sign > 0 else f"`{preset}`: no weight is clearly the best, {why_not(second)}"


def _examine(results: Results) -> Finding:
    rows = results.rows(FILE, "seed", "weight", AVERAGE, LAST)
    # Where the weight was searched for on validation images, only the chosen one was tried on test images.
    searched = [row for row in rows if row.get("tested_on", "test") != "test"]
    rows = searched or rows
    bound = results.published["lambda"]["average incremental accuracy varies by less than"]
    measured, problems = ["Accuracies on validation images."] if searched else [], []
    presets = presets_of(rows)
    for preset in presets:
        average, last = (_values(rows, preset, column) for column in (AVERAGE, LAST))
        average.pop(0.0, None)
        none = last.pop(0.0, {})
        if not last:
            problems.append(f"`{preset}`: only runs without the Laplace term")
            continue
        sentence, unstable = _stable(preset, average, bound)
        sentences, unclear = _best(preset, last, none)
        measured += [sentence, *sentences]
        problems += [problem for problem in (unstable, unclear) if problem]
    scale = PAPER if {scale_of(preset) for preset in presets} == {PAPER} else MINI
    return Finding(
        tuple(measured),
        Verdict.NOT_SHOWN if problems else holds_at(scale),
        "; ".join(problems) + "." if problems else "Stable on average, with a clear best weight for last accuracy.",
        scale,
    )


def _statement(results: Results) -> str:
    weights = results.published["lambda"]
    return (
        "Average incremental accuracy hardly depends on the weight of the new term (less than "
        f"{weights['average incremental accuracy varies by less than']} points); last accuracy has a clear best value "
        f"({weights['best for last accuracy on CUB-200']}, on CUB-200 with CLIP)."
    )


CLAIMS = (
    Claim(
        "lambda",
        "Sensitivity to the weight of the Laplace term",
        _statement,
        "Experiments, sensitivity",
        "remix reproduce lambda --seeds 0-2",
        "minutes",
        (FILE,),
        _examine,
    ),
)
