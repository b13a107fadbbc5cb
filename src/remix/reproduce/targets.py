"""Targets of `remix reproduce`: one line here and one module each.

A module has ``TAKES``, the options it looks at (fields of `Reproduction`), and ``reproduce(wanted, listener)``, which
returns whether everything was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remix.support.text import did_you_mean

if TYPE_CHECKING:
    from remix.deploy.dream_files import DreamFiles
    from remix.deploy.dream_plan import DreamPlan
    from remix.learning import Model

__all__ = ["TARGETS", "Listener", "Reproduction", "reproduce_target"]

TARGETS = {
    "table1": "Methods by data sets and numbers of tasks: last, average incremental accuracy, forgetting (table 1)",
    "table2": "The same of adapters in transformers that classify by texts (table 2)",
    "efficiency": "Time, memory and accuracy of PMI and REMIX (the efficiency table)",
    "retention": "Accuracy on new and on old tasks, task after task (the retention figure)",
    "lambda": "The weight of the Laplace term: chosen on validation images, then test images (figure 5, table 3)",
    "samples": "Dreams of photographs without a prior and with Laplace priors, side by side (the sample figures)",
    "likelihood": "Log-likelihood of real features: diagonal, Laplace, the paper's recipe (the likelihood tables)",
    "convergence": "Layer-wise inversion against that of pixels at equal cost (the paper's words on PMI)",
    "figures": "The pipeline, and how the covariance is built, drawn from a run on digits (figures 1 and 2)",
    "memory": "Bytes of saved covariances against dense matrices (the memory table)",
}
_MODULES = {"lambda": "sensitivity"}  # where the name of the module is another


@dataclass(frozen=True)
class Reproduction:
    """What is asked for; None where a target chooses.

    Attributes:
        out: folder of the results.
        scale: "mini" for what a laptop does within an hour, "paper" for the paper's sizes.
        resume: go on with what is in that folder.
        data: folder of images or of data sets.
        runs: folder of the runs that targets share.
        rows: CSV file of an earlier call; its rows stand for runs that are not in that folder.
        seeds: of the runs, such as 0-2.
        preset: of the runs, instead of the one that belongs to the scale.
        jobs: runs at a time.
        finished: take the runs that are finished, run nothing.
        dry_run: only show the plan.
        weights: of the ResNet-34; with ``vit`` that which judges dreams.
        classes: names of folders of photographs, separated by commas.
        form: in which the prior of dreams enters.
        vit: `transformers` folder of a vision transformer.
        vit_images: its images: a data set by name, or a folder.
        memory: GiB that rows may take while they are fitted.

    """

    out: Path
    scale: str = "mini"
    resume: bool = False
    data: str | None = None
    runs: str | None = None
    rows: str | None = None
    seeds: str | None = None
    preset: str | None = None
    jobs: int | None = None
    finished: bool | None = None
    dry_run: bool | None = None
    weights: str | None = None
    classes: str | None = None
    form: str | None = None
    vit: str | None = None
    vit_images: str | None = None
    memory: float | None = None

    def needs(self, *names: str) -> None:
        """Raise ValueError for options that are missing."""
        for name in names:
            if getattr(self, name) is None:
                raise ValueError(f"this target needs --{name.replace('_', '-')}")


class Listener:
    """What a target tells while it is made. This one hears nothing; `remix reproduce` prints."""

    def say(self, text: str) -> None:
        """A line, or a result of several."""

    def fail(self, sentence: str) -> None:
        """Something that did not go well; the rest goes on."""

    def plan(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The runs that are needed, as cells of a table."""

    def measure(self, bare: Model, images: Path, out: Path, **options: Any) -> None:
        """Measure a model on a folder of images (see `measure_model`), save it with its statistics, and tell of it."""
        from remix.deploy.measuring import measure_model, read_folder
        from remix.learning import save_model

        data = read_folder(images, bare.preprocessing, options.pop("classes", None)).train
        save_model(out, measure_model(bare, data, **options).model)

    def dream(self, plan: DreamPlan, files: DreamFiles, resume: bool) -> bool:
        """Run the plan of a dream, and tell of it; returns whether it came to its end."""
        from remix.deploy.dream_files import run_dream

        return run_dream(plan, files, resume).finished


def reproduce_target(target: str, wanted: Reproduction, listener: Listener) -> bool:
    """Run a target.

    Returns:
        whether everything was done; what was not was said.

    Raises:
        ValueError: for an unknown target, an option it does not look at, or one it needs; before any work.
        OSError: if a file cannot be read or written.

    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}{did_you_mean(target, TARGETS)}; there are: {', '.join(TARGETS)}")
    if wanted.scale not in ("mini", "paper"):
        raise ValueError(f"--scale must be mini or paper, got {wanted.scale!r}")
    if wanted.memory is not None and wanted.memory <= 0:
        raise ValueError(f"--memory must be positive, got {wanted.memory}")
    module: Any = import_module(f"remix.reproduce.{_MODULES.get(target, target)}")
    for field in fields(wanted):
        if field.name in ("out", "scale", "resume", *module.TAKES):
            continue
        if getattr(wanted, field.name) is not None:
            raise ValueError(f"the target {target} does not look at --{field.name.replace('_', '-')}")
    if wanted.out.exists() and any(wanted.out.iterdir()) and not (wanted.resume or wanted.dry_run):
        raise ValueError(f"the folder {wanted.out} has results already: --resume goes on, or choose another --out")
    run: Callable[[Reproduction, Listener], bool] = module.reproduce
    return run(wanted, listener)
