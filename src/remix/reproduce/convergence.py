"""Layer-wise inversion against that of pixels at equal cost, as the paper says they differ in how fast they converge.

Both seek images of the same target features under the same objective, that of PMI's refinement. Cost is counted in
passes of an image through the network, forward and backward; a step of one block is that share of a pass. A point is a
whole inversion of that length, its rates scaled to it. The second judge of the images is a network trained from another
seed, which had no part in them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from remix.experiments.config import resolve
from remix.experiments.paired import paired_difference, spread
from remix.experiments.sweep import parse_seeds
from remix.inversion import (
    Boost,
    FeatureMatch,
    Knowledge,
    LayerwiseSettings,
    Optimisation,
    PriorSettings,
    Schedule,
    StatisticsKl,
    Targets,
    TensorVariable,
    Term,
    balanced_labels,
    feature_targets,
    frozen,
    invert_layerwise,
    optimise,
)
from remix.inversion.dream import noise
from remix.networks import Classifier
from remix.reproduce import needed_runs
from remix.reproduce.given_rows import Row, read_rows
from remix.reproduce.needed_runs import NeededRun, need_runs
from remix.reproduce.result_files import new_figure, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.reproduce.trained import one_task, open_trained
from remix.support.files import write_text
from remix.support.text import as_csv, as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = (*(name for name in needed_runs.TAKES if name != "rows"), "preset")
_IMAGES = {"mini": 200, "paper": 1000}
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the preset's steps
_PIXEL_RATE = 0.1  # that of DeepInversion; pixels are tried with that of the refinement too
_LAYERWISE = "layer-wise"
_MEASURES = {
    "objective": "objective",
    "features": "distance to the target features",
    "statistics": "divergence of statistics",
    "judged_right": "read right by the other network, %",
}
_TERMS = {"objective": "loss", "features": "features", "statistics": "statistics"}  # in the history of an optimisation
_COLOURS = ("#1971c2", "#e8590c", "#f59f00")
Rows = Sequence[Row]


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    small = "cifar100-mini" if wanted.data else "digits"
    preset = wanted.preset or {"mini": small, "paper": "cifar100-10"}[wanted.scale]
    if wanted.seeds and len(parse_seeds(wanted.seeds)) < 2:
        raise ValueError("one network dreams and another judges: give two seeds at least, such as --seeds 0-1")
    runs, complete = need_runs(wanted, [one_task(preset)], listener)
    settings, images = _settings(preset), _IMAGES[wanted.scale]
    if wanted.dry_run:
        passes = 3 * sum(sum(_lengths(settings, factor)) for factor in _FACTORS)
        listener.say(f"then every network dreams {images} images, each with {passes:,} passes in all")
    if len(runs) < 2:
        return complete
    file = wanted.out / "convergence.csv"
    columns = ("passes", "seconds", *_MEASURES)
    kept = read_rows(file, columns) if wanted.resume and file.exists() else {}
    rows: list[Row] = [row for found in kept.values() for row in found]
    wanted.out.mkdir(parents=True, exist_ok=True)
    for place, run in enumerate(runs):
        if run.seed in {row["seed"] for row in rows}:
            continue
        judge = runs[(place + 1) % len(runs)]
        listener.say(f"the network of seed {run.seed} dreams, that of seed {judge.seed} judges")
        rows += _curves(run, judge, images, settings, "auto" if wanted.scale == "paper" else "cpu")
        write_text(file, as_csv(rows))
    text = "\n\n".join([_heading(wanted, runs), _table(rows), *_sentences(rows, sum(_lengths(settings, 1.0)))])
    write_results(wanted, "convergence", runs, rows, text, _figure(rows), listener)
    return complete


def _settings(preset: str) -> LayerwiseSettings:
    """Of the preset's PMI: no covariances."""
    settings: Any = resolve(preset, method="pmi").settings
    inversion: LayerwiseSettings = settings.inversion
    return replace(inversion, prior=PriorSettings("none"))


def _lengths(settings: LayerwiseSettings, factor: float) -> tuple[int, int]:
    """Steps for every block and of the refinement, in a part or a multiple of the preset's."""
    return max(1, round(factor * settings.block.steps)), max(1, round(factor * settings.refine.steps))


def _scaled(schedule: Schedule, steps: int) -> Schedule:
    """The same rates over another number of steps."""
    share = steps / schedule.steps
    milestones = tuple(sorted({round(share * milestone) for milestone in schedule.milestones}))
    return replace(schedule, steps=steps, warm_up=round(share * schedule.warm_up), milestones=milestones)


def _curves(run: NeededRun, judge: NeededRun, images: int, settings: LayerwiseSettings, device: str) -> list[Row]:
    """Every strategy at every cost, with the network of one run, judged by that of another."""
    model, other = open_trained(run, device), open_trained(judge, device).classifier
    memory = model.memory
    assert memory is not None
    assert memory.gaussians is not None
    generator = torch.Generator().manual_seed(run.seed)
    labels = balanced_labels(range(len(model.classes)), images)
    targets = feature_targets(labels, memory.gaussians, memory.selectors, generator)
    knowledge = Knowledge(model.classifier.backbone, memory.layers, model.classifier.head)
    rates = dict.fromkeys((settings.refine.rate, _PIXEL_RATE))
    rows: list[Row] = []
    for factor in _FACTORS:
        block, refine = _lengths(settings, factor)
        passes = block + refine
        schedules = {f"pixels, rate {rate:g}": replace(settings.refine, rate=rate) for rate in rates}
        for name in (_LAYERWISE, *schedules):
            task = _Problem(knowledge, targets, settings, torch.Generator().manual_seed(run.seed))
            began = _clock(knowledge.like)
            if name == _LAYERWISE:
                found = task.layerwise(block, refine)
            else:
                found = task.pixels(_scaled(schedules[name], passes))
            seconds = _clock(knowledge.like) - began
            rows.append({
                "preset": run.variant.benchmark, "method": name, "seed": run.seed, "passes": passes,
                "seconds": round(seconds, 3), **task.measured(found),
                "own_right": _right(model.classifier, found, labels), "judged_right": _right(other, found, labels),
            })  # fmt: skip
    return rows


@dataclass(frozen=True)
class _Problem:
    """Images of target features, and the objective that they are held to in the end whichever way they come."""

    knowledge: Knowledge
    targets: Targets
    settings: LayerwiseSettings
    generator: torch.Generator

    def layerwise(self, block: int, refine: int) -> Tensor:
        """Block by block, then refined."""
        settings = replace(
            self.settings,
            block=_scaled(self.settings.block, block),
            refine=_scaled(self.settings.refine, refine),
            batch=len(self.targets),
        )
        return invert_layerwise(self.knowledge, self.targets, self.generator, settings).images

    def pixels(self, schedule: Schedule) -> Tensor:
        """The refinement alone, from noise."""
        shape = (len(self.targets), *self.knowledge.backbone.input_shape)
        state = self._optimise(noise(shape, self.knowledge.like, self.generator), schedule)
        assert state.best is not None
        return state.best[0]

    def measured(self, images: Tensor) -> dict[str, float]:
        """The terms of the objective, in the first of one step."""
        history = self._optimise(images, Schedule(1, 1e-6)).history
        return {name: history[term][0] for name, term in _TERMS.items()}

    def _optimise(self, start: Tensor, schedule: Schedule) -> Any:
        knowledge, settings = self.knowledge, self.settings
        assert self.targets.features is not None
        boost = Boost(10) if settings.boosting else None
        terms = [
            Term("features", settings.features, FeatureMatch(self.targets.features.to(knowledge.like)), boost),
            Term("statistics", settings.statistics, StatisticsKl(knowledge.moments), boost),
        ]
        with frozen(*knowledge.networks):
            variable = TensorVariable(start)
            task = Optimisation(terms, knowledge.backbone, knowledge.pooled, variable, schedule)
            return optimise(task, self.generator)[0]


def _clock(like: Tensor) -> float:
    """Seconds of the processor; where another device works, those of the wall."""
    return time.process_time() if like.device.type == "cpu" else time.perf_counter()


@torch.no_grad()
def _right(classifier: Classifier, images: Tensor, labels: Tensor) -> float:
    """Percent of the images that a network gives their label."""
    with frozen(classifier):
        said = classifier(images).argmax(1)
    return 100 * float((said == labels.to(said.device)).double().mean())


def _heading(wanted: Reproduction, runs: Sequence[NeededRun]) -> str:
    real = spread([run.summary()["metrics"]["last_accuracy_macro"] for run in runs])
    images, classes = _IMAGES[wanted.scale], runs[0].config.data.classes
    of = f"{classes} classes" if classes else "all classes"
    return (
        f"{runs[0].variant.benchmark}, {of} learned at once: {images} images of each network, mean ± standard "
        f"deviation over {len(runs)} networks. Cost in passes of an image through the network; the networks read "
        f"{real} % of the test images."
    )


def _of(rows: Rows, name: str, passes: int, measure: str) -> dict[int, float]:
    """By seed."""
    return {row["seed"]: row[measure] for row in rows if row["method"] == name and row["passes"] == passes}


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _costs(rows: Rows) -> list[int]:
    return sorted({row["passes"] for row in rows})


def _mean(rows: Rows, name: str, passes: int, measure: str) -> float:
    return spread([*_of(rows, name, passes, measure).values()]).mean


def _table(rows: Rows) -> str:
    lines = []
    for name in _names(rows):
        for passes in _costs(rows):
            found = {key: spread([*_of(rows, name, passes, key).values()]) for key in (*_MEASURES, "seconds")}
            cells = [f"{found[key].mean:.4f}" for key in _TERMS]
            lines.append([name, str(passes), *cells, str(found["judged_right"]), f"{found['seconds'].mean:.1f}"])
    return as_markdown(["inversion", "passes", *_MEASURES.values(), "seconds"], lines)


def _sentences(rows: Rows, usual: int) -> list[str]:
    """Layer-wise against pixels, these with the rate that is better at that cost."""
    others = [name for name in _names(rows) if name != _LAYERWISE]
    ratios = []
    for cost in _costs(rows):
        pixels = min(_mean(rows, name, cost, "objective") for name in others)
        ratios.append(f"{_mean(rows, _LAYERWISE, cost, 'objective') / pixels:.2f} with {cost}")
    best = max(others, key=lambda name: _mean(rows, name, usual, "judged_right"))
    pair = paired_difference(*(_of(rows, name, usual, "judged_right") for name in (_LAYERWISE, best)))
    return [
        f"Objective of layer-wise inversion over that of pixels with the better rate: {', '.join(ratios)} passes.",
        f"With the preset's {usual} passes: {pair.sentence(_LAYERWISE, best, 'points read right')}",
    ]


def _figure(rows: Rows) -> Figure:
    """A panel per measure over the cost: mean over networks as a line, a dot per network."""
    figure = new_figure(8, 6)
    costs = _costs(rows)
    panels = figure.subplots(2, 2).ravel()
    for panel, (measure, words) in zip(panels, _MEASURES.items(), strict=True):
        for name, colour in zip(_names(rows), _COLOURS, strict=False):
            panel.plot(costs, [_mean(rows, name, cost, measure) for cost in costs], color=colour, lw=1.8, label=name)
            for cost in costs:
                values = [*_of(rows, name, cost, measure).values()]
                panel.plot([cost] * len(values), values, "o", ms=3.5, color=colour, alpha=0.5)
        panel.set_xscale("log")
        panel.set_xticks(costs, [str(cost) for cost in costs])
        panel.minorticks_off()
        if measure != "judged_right":
            panel.set_yscale("log")
            panel.tick_params(which="minor", labelsize=8)
        tidy(panel, words, "passes through the network, per image")
    panels[0].legend(fontsize=8)
    return figure
