"""`remix learn`."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from remix.data import Skipped
from remix.data.errors import left_out
from remix.data.folder_scan import scan
from remix.deploy.evaluation import Evaluation, evaluate_folder
from remix.deploy.learner import Learner, load
from remix.deploy.learning_monitor import LearningMonitor
from remix.deploy.recipe import WITHOUT_DREAMS
from remix.deploy.sources import read_numbers, read_options
from remix.inversion import InversionStoppedError
from remix.learning import LearnStep, Model, TrainingStoppedError
from remix.support.clock import RunClock
from remix.support.display import Display, duration

__all__ = ["LearnOptions", "learn_command"]


@dataclass(frozen=True)
class LearnOptions:
    """What was typed besides the settings.

    Attributes:
        source: a model file, or the folder of the first images.
        images: the folder of new images, where there is a model.
        out: the model file to write.
        backbone, weights, options, mean, std: of a new network.
        method: remix by default, or that of the model's last step.
        name: of the step.
        extend: whether known classes may get further images.
        check: a folder of labelled images to test on before and after.
        device: where to compute.
        overwrite: whether ``out`` may exist.

    """

    source: str
    images: str | None
    out: str
    backbone: str | None = None
    weights: str | None = None
    options: str | None = None
    mean: str | None = None
    std: str | None = None
    method: str | None = None
    name: str | None = None
    extend: bool = False
    check: str | None = None
    device: str = "auto"
    overwrite: bool = False


def learn_command(typed: LearnOptions, settings: dict[str, Any], console: Console | None = None) -> int:
    """Learn the classes in a folder of images and write the new model; the old one is never changed.

    Returns:
        the status of the command: 0, or 1 if training failed or the file could not be written, which was said.

    Raises:
        ValueError: (DataError too) for what the person can set right, before any work.
        OSError: if something cannot be read.
        KeyboardInterrupt: after Ctrl-C; nothing was written.

    """
    console = console or Console()
    began = time.monotonic()
    out = Path(typed.out)
    _check_paths(typed, out)
    learner = _learner(typed, settings)
    known = learner.classes
    folder = typed.images if typed.images is not None else typed.source
    data = learner.intake(folder)
    counts = data.train.counts()
    _say(console, f"{len(data.classes)} classes, {len(data.train)} images to learn from, {len(data.held)} held out")
    few = [name for name, count in counts.items() if count < 5]
    if few:
        _say(console, f"note: {few[0]} has only {counts[few[0]]} to learn from; 30 or more per class work well")
    checked = () if typed.check is None else scan(Path(typed.check)).classes
    before = evaluate_folder(learner.model, typed.check) if typed.check and {*known} & {*checked} else None
    try:
        with Display(console) as display:
            learner.monitor = LearningMonitor(display, bool(known) and learner.method not in WITHOUT_DREAMS)
            outcome = learner.learn_intake(data, learner.settings, extend=typed.extend, name=typed.name or "")
    except (TrainingStoppedError, InversionStoppedError) as error:
        console.print(f"remix learn: {error}; nothing was written", style="red", soft_wrap=True, highlight=False)
        return 1
    status = _written(learner, out, console)
    if status:
        return status
    after = evaluate_folder(learner.model, typed.check) if typed.check and {*learner.classes} & {*checked} else None
    if typed.check and after is None:
        _say(console, f"note: {typed.check} has none of the model's classes, so nothing was tested on it")
    for note in learner.notes:
        _say(console, f"note: {note}")
    console.print(_table(learner.model, outcome.step, len(known), before, after))
    _say_skipped(console, data.skipped + (after.skipped if after is not None else ()))
    size = out.stat().st_size / 2**20
    _say(console, f"{out}: {len(learner.classes)} classes, {size:.1f} MB, no image in it")
    _say(console, f"{duration(time.monotonic() - began)}, peak memory {RunClock().peak >> 20:,} MiB")
    return 0


def _check_paths(typed: LearnOptions, out: Path) -> None:
    source = Path(typed.source)
    if typed.images is None and source.is_file():
        raise ValueError(f"name the folder of new images too: remix learn {source} NEW_IMAGES/ --out {out}")
    if typed.images is not None and source.is_dir():
        raise ValueError(
            f"{source} is a folder: the model comes first, remix learn model.remix NEW_IMAGES/ --out {out}"
        )
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file in it, such as {out / 'model.remix'}")
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError(f"--out {out} is the model itself, which is never changed: choose another name")
    if out.exists() and not typed.overwrite:
        raise ValueError(f"{out} exists already: choose another name, or add --overwrite")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} to")
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"no permission to write to the folder {out.parent}")


def _learner(typed: LearnOptions, settings: dict[str, Any]) -> Learner:
    given = {key: value for key, value in settings.items() if value is not None}
    if typed.images is None:
        backbone = typed.backbone or "resnet32"
        if typed.weights is not None and typed.backbone is None:
            raise ValueError("weights do not say what network they belong to: give --backbone (see: remix backbones)")
        return Learner(
            backbone, typed.method or "remix", weights=typed.weights, options=read_options(typed.options),
            mean=read_numbers("--mean", typed.mean), std=read_numbers("--std", typed.std),
            device=typed.device, **given,
        )  # fmt: skip
    for option in ("backbone", "weights", "options", "mean", "std"):
        if getattr(typed, option) is not None:
            raise ValueError(f"--{option} is for the first step; {typed.source} has its network already")
    learner = load(typed.source, device=typed.device, **given)
    if typed.method is not None:
        learner.use_method(typed.method)
    return learner


def _written(learner: Learner, out: Path, console: Console) -> int:
    try:
        learner.save(out)
    except OSError as error:
        reason = "no space is left on its disk" if error.errno == errno.ENOSPC else os.strerror(error.errno or 0)
        text = f"remix learn: {out} could not be written: {reason}; nothing was changed"
        console.print(text, style="red", soft_wrap=True, highlight=False, markup=False)
        return 1
    return 0


def _table(model: Model, step: LearnStep, old: int, before: Evaluation | None, after: Evaluation | None) -> Table:
    table = Table("classes", "tested on", title="accuracy in percent", title_justify="left")
    for column in ("before", "now"):
        table.add_column(column, justify="right")
    found, new = step.accuracies, len(model.classes) - old
    if "held-out images" in found:
        table.add_row(f"all {new}", "held-out images", "", f"{found['held-out images']:.1f}")
    if "new classes, held-out images" in found:
        what = f"{new} new" if not step.extended else f"{len(step.classes)} in the folder"
        table.add_row(what, "held-out images", "", f"{found['new classes, held-out images']:.1f}")
    if after is not None:
        for what, labels in ((f"{old} old", range(old)), (f"{new} new", range(old, old + new))):
            now = _accuracy(after, labels)
            if now is not None:
                was = _accuracy(before, labels) if before is not None and labels.start == 0 else None
                table.add_row(what, "--check images", "" if was is None else f"{was:.1f}", f"{now:.1f}")
    return table


def _accuracy(found: Evaluation, labels: range) -> float | None:
    """Share of the images of these classes that were read right, in percent; None if there are none."""
    counts = [found.of_class(label) for label in labels if label < len(found.classes)]
    images = sum(count for count, _ in counts)
    return 100 * sum(right for _, right in counts) / images if images else None


def _say_skipped(console: Console, skipped: tuple[Skipped, ...]) -> None:
    if not skipped:
        return
    _say(console, f"{len(skipped):,} {'were' if len(skipped) > 1 else 'was'} left out:")
    for line in left_out(skipped):
        _say(console, f"  {line}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
