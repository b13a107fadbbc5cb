"""The table of docs/reproduce/settings.md (`paper`, `code`, `ours` and `clip`): python -m benchmarks.settings_table

Values are read off the methods, words are written here. A test fails when the page is not what this makes, or when the
settings differ in a field that no row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remix.methods import create_method
from remix.support.settings import plain

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reproduce" / "settings.md"
BEGIN, END = "<!-- python -m benchmarks.settings_table -->", "<!-- end of the table -->"
SETTINGS = ("paper", "code", "ours", "clip")


@dataclass(frozen=True)
class Row:
    """An element of the method.

    Attributes:
        element: what it is.
        fields: of `remix`, as dotted paths.
        source: where the values come from.
        words: for a value, in place of the value itself.

    """

    element: str
    fields: tuple[str, ...]
    source: str
    words: Mapping[Any, str] = field(default_factory=dict)


ROWS = (
    Row(
        "fit of a covariance",
        ("inversion.prior.kind",),
        "paper: section 3, app. G; code: its defaults",
        {
            "laplace-paper": "`laplace-paper`: Frobenius distance of covariances; softplus, Adam 0.01, 200 steps",
            "laplace-code": "`laplace-code`: the same of correlations, begun at the last fit",
            "laplace": "`laplace`: likelihood, order searched",
        },
    ),
    Row(
        "covariances of tasks",
        ("inversion.prior.kind",),
        "by numbers of classes in all three",
        {
            "laplace-paper": "sum of two fitted models, fitted again; spread of means left out",
            "laplace-code": "fit to a blend of the last model and what was just measured",
            "laplace": "spread of means included; the most likely of three fits",
        },
    ),
    Row(
        "statistics of layers (alpha_stat)",
        ("inversion.statistics_form",),
        "paper: app. D; `pmi` has the KL in all three",
        {
            "nll": "`nll`: likelihood under the covariance, summed over channels, *instead of* the KL",
            "kl": "`kl`: KL of means and variances per channel; the covariance is an addition",
        },
    ),
    Row(
        "what lambda_F weighs",
        ("inversion.prior.form",),
        "paper: app. G, by its words; code",
        {
            "frobenius": "`frobenius`: distance of the batch's covariance from the model's, over channels",
            "nll": "`nll`: mean over layers of NLL / channels",
        },
    ),
    Row("terms that grow gain weight", ("inversion.boosting",), "not in the paper"),
    Row(
        "outputs of blocks normalised where matched",
        ("inversion.normalised",),
        "paper: app. D; what `norm` is it does not say: here by the deviations that real inputs of the next block have",
    ),
    Row(
        "topmost block aims at",
        ("inversion.top",),
        "paper: app. D",
        {"labels": "selected features that the cross-entropy moved first (`labels`)", "features": "selected features"},
    ),
    Row("image prior", ("inversion.variation",), "paper: app. D; its weight is not stated: R-DFCIL's"),
    Row(
        "refinement: features, labels",
        ("inversion.refine_features", "inversion.labels"),
        "paper: app. D; code: no cross-entropy anywhere",
    ),
    Row(
        "selection: pool, score",
        ("selectors.pool", "selectors.score"),
        "paper: app. D; `pool`: one pool, features left as drawn; else in steps, mean and spread given back",
    ),
    Row(
        "selectors of old classes trained again, on pseudo-samples",
        ("selectors.again",),
        "paper: app. D, on real features",
    ),
    Row("statistics of augmented images", ("measure_augmented",), "paper: not stated, as the code"),
    Row(
        "Gaussians of old classes",
        ("follow",),
        "paper: not stated, as the code",
        {"dreams": "measured on pseudo-samples", "drift": "moved with the features of new images", "kept": "kept"},
    ),
    Row(
        "epochs: newest classifier, last block, network",
        ("head.epochs", "last_block.epochs", "network.epochs"),
        "paper: app. E, one joint stage; its length is the code's sum",
    ),
    Row(
        "rate and milestones of the network",
        ("network.lr", "network.milestones"),
        "paper: not stated, R-DFCIL's, whose procedure app. E follows; code: 0.005 in some benchmarks",
    ),
    Row("classifiers that learn with the network", ("classifiers",), "paper: app. E"),
    Row(
        "base weights: head term, hard distillation",
        ("scales.head", "scales.hard"),
        "paper: no head term (app. E), other base weights not stated, the code's",
    ),
    Row(
        "balancing: class weights",
        ("balance_weights",),
        "paper: app. E",
        {
            "task": "`task`: w_y / sum_j w_j, counts of this task",
            "seen": "`seen`: all labels seen in this task's stages, divided by the least",
        },
    ),
    Row(
        "balancing: keeps old logits", ("balance_distils",), "paper: app. E; ours balances on draws from the Gaussians"
    ),
    Row("balancing: rate and milestones", ("balance.lr", "balance.milestones"), "paper: not stated, as the code"),
    Row("real images and pseudo-samples one batch for BatchNorm", ("together",), "paper: not stated, as the code"),
    Row("pseudo-samples augmented", ("augment_replay",), "paper: not stated, as the code"),
    Row("inputs of which block are dreamed", ("depth",), "0: images, also the paper's for CLIP; 1: patches embedded"),
    Row(
        "first task: epochs, rate, milestones, decay",
        ("first.epochs", "first.lr", "first.milestones", "first.weight_decay"),
        "CUB-200: 10 epochs",
    ),
    Row(
        "optimiser, schedule, warm-up of the first task",
        ("first.optimiser", "first.schedule", "first.warm_up"),
        "CLIP: warm-up in batches",
    ),
    Row(
        "optimiser, schedule, warm-up, decay of the network",
        ("network.optimiser", "network.schedule", "network.warm_up", "network.weight_decay"),
        "as the first task",
    ),
    Row("epochs of balancing", ("balance.epochs",), "CLIP: not in the code"),
    Row(
        "base weights: local, relational, texts; head term follows numbers of classes",
        ("scales.local", "scales.relational", "scales.text", "scales.head_follows"),
        "CUB-200: texts 0.1, head 0.2",
    ),
    Row(
        "pseudo-samples: at least, per task; every class equally many; drawn with replacement",
        ("samples", "samples_per_task", "balanced", "replacement"),
        "CUB-200: 100 per task",
    ),
    Row("steps, rate of a block", ("inversion.block.steps", "inversion.block.rate"), "code"),
    Row(
        "steps, rate of the block that is entered; first side of its maps",
        ("inversion.entry", "inversion.entry_side"),
        "code",
    ),
    Row(
        "refinement: steps, rate, warm-up, milestones, period",
        tuple(f"inversion.refine.{name}" for name in ("steps", "rate", "warm_up", "milestones", "cosine_period")),
        "CUB-200: rate 0.02",
    ),
    Row(
        "refinement: statistics at, variation of maps",
        ("inversion.refine_at", "inversion.refine_variation"),
        "paper: squared differences of images",
    ),
    Row(
        "weights: statistics, input, factor in a block",
        ("inversion.statistics", "inversion.input", "inversion.block_factor"),
        "CUB-200: 0.2, 0.2",
    ),
    Row(
        "lambda_F; of the sum over layers",
        ("inversion.prior.weight", "inversion.prior.summed"),
        "CUB-200: 0.01; token positions",
    ),
    Row("at once, of these in memory", ("inversion.batch", "inversion.micro_batch"), "the same result with any"),
)


def value(settings: Mapping[str, Any], path: str) -> Any:
    """What a dotted path of plain settings holds."""
    found: Any = settings
    for part in path.split("."):
        found = found[part]
    return found


def table() -> str:
    """The table in Markdown."""
    methods = {name: plain(create_method("remix", setting=name)) for name in SETTINGS}
    lines = []
    for row in ROWS:
        cells = [", ".join(_shown(value(methods[name], path), row.words) for path in row.fields) for name in SETTINGS]
        lines.append([row.element, *cells, row.source])
    heads = ["element", *SETTINGS, "where the value comes from"]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def _shown(found: Any, words: Mapping[Any, str]) -> str:
    if found is None:
        return "-"
    if isinstance(found, dict):
        return f"{found['steps']}, {found['rate']:g}"
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, str) and found in words:
        return words[found]
    return str(found) if isinstance(found, list) else f"{found:g}" if isinstance(found, float | int) else f"`{found}`"


def page() -> str:
    """The page with the table as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written  {PAGE}")
