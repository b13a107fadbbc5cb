"""`remix learn`."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remix.cli.output import check_target
from remix.cli.parser import read_numbers, read_options
from remix.support.text import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from remix.data import ImageDataset, Skipped
    from remix.data.intake import Intake
    from remix.deploy.evaluation import Evaluation
    from remix.deploy.learner import Learner
    from remix.deploy.recipe import LearnSettings
    from remix.learning import LearnStep, Model

__all__ = ["learn"]

_JOINT = (
    "joint: the model's network with a new head, trained on old and new images together; what this step could reach "
    "if the old images were still used"
)


def learn(
    source: str,
    images: str | None = None,
    *,
    out: str,
    backbone: str | None = None,
    weights: str | None = None,
    extend: bool = False,
    check: str | None = None,
    joint: str | None = None,
    similar_names: bool = False,
    name: str | None = None,
    method: str | None = None,
    head: str | None = None,
    prior: str | None = None,
    covariance: str | None = None,
    minimum: int | None = None,
    removable: bool = False,
    freeze: str | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    samples: int | None = None,
    size: int | None = None,
    batch: int | None = None,
    versions: int | None = None,
    holdout: float | None = None,
    patience: int | None = None,
    seed: int | None = None,
    no_flip: bool = False,
    mean: str | None = None,
    std: str | None = None,
    options: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> None:
    """Teach a classifier the classes in a folder of photographs, without the photographs of the classes it knows.

    With one folder, the first classes: remix learn IMAGES/ --out model.remix. With a model and a folder, more classes:
    remix learn model.remix NEW_IMAGES/ --out model2.remix. The model is never changed; the new one is written whole or
    not at all. At the end a table tells how well the new classes (on a part of the images that was held out) and, with
    --check, the old ones are told apart.

    What is not given is chosen by the data. With --weights the network stays as it is and a head is solved in seconds;
    a method that trains leaves all but its last block frozen, up to 5,000 images. Without weights everything learns.
    Training stops when the held-out part gets no better.

    Args:
        source: The folder of the first images, one sub-folder per class; or a model file.
        images: The folder of new images, where source is a model.
        out: The model file to write, usually NAME.remix.
        backbone: The network to begin with (see: remix backbones); resnet32 by default. hf:PATH for one of the
            transformers library with its weights.
        weights: Safetensors file with weights to begin with, such as of a network trained on ImageNet.
        extend: Add images to classes that the model knows already; without it a known class is an error.
        check: Folder of labelled images to test on, before and after; nothing is learned from it.
        joint: Folder of images of all classes that the model knows, if you still have them: a copy of its network is
            trained on old and new images together, for comparison, and not kept. Takes as long again, or longer.
        similar_names: Take names of classes that differ only in case or spaces for different classes.
        name: Name of this step, which remix inspect shows.
        method: How old classes are kept. By default auto: an exact head, within seconds (lda or ranpac, whichever suits
            the first images), on a network that stays as it is; without weights it learns from the first classes, and
            from later ones too (drift) if there are enough images. Or remix, pmi, drift, lwf, finetune; ncm, lda,
            fecam, ranpac. A model goes on with its own.
        head: Head of the network, in its first step: linear (the default) or cosine.
        prior: Covariance of activations that synthetic images are held to: laplace (the default), dense or diagonal.
        covariance: Covariance of features that the method lda keeps: auto (the default), dense, laplace or diagonal.
        minimum: Fewest images of a class that an exact head takes, whose sums tell little of one among many.
        removable: Keep what an exact head knows of every class by itself, so that remix classes can remove it;
            chosen in the first step. Says how many bytes that takes.
        freeze: Blocks that never change: a number, the name of the first block that learns, last-stage or none. By
            default all but the last with weights and up to 5,000 images, else none; a model keeps them.
        epochs: Most passes over the images; by default 8 to 20 with weights or frozen blocks, else 20 to 60.
        lr: Learning rate at which training begins; by default 0.004 with weights or frozen blocks, else 0.05.
        samples: Synthetic images of each old class; by default 30 with frozen blocks, else 40.
        size: Side in pixels to which images are brought; that of the backbone by default, 128 for those of 224.
        batch: Images in a step of training, and as many synthetic ones; 32 by default, 128 above 5,000 images.
        versions: Augmented versions of every image that go through frozen blocks; 3 by default, 1 for none.
        holdout: Fraction of the images to hold out, 0.2 by default; 0 for none, as for an exact head.
        patience: Epochs without improvement after which training stops; by default a third of them, at least 4.
        seed: Number from which everything random is drawn; 0 by default.
        no_flip: Never mirror images left to right, as for letters; grey images are not mirrored anyway.
        mean: Mean of each channel that --weights were trained with, within 0..1 and separated by commas; by default
            that of ImageNet for colour, 0 for grey.
        std: Standard deviation of each channel, as --mean; 1 for grey by default.
        options: Options of the backbone, such as width=8; several are separated by commas.
        device: Where to compute: auto (a GPU if there is one), cpu, cuda, mps, ...
        overwrite: Replace the file --out if it exists.

    Examples:
        remix learn photos/first --backbone resnet34 --weights resnet34.safetensors --out model.remix
        remix learn model.remix photos/more --out model2.remix
        remix learn model2.remix photos/again --extend --check photos/test --out model3.remix
        remix learn digits/first --backbone convnet8 --out digits.remix
    """
    from rich.console import Console

    from remix.data.folder import scan
    from remix.deploy.evaluation import evaluate_folder
    from remix.deploy.learning_monitor import LearningMonitor
    from remix.inversion import InversionStoppedError
    from remix.learning import TrainingStoppedError
    from remix.support.clock import RunClock
    from remix.support.display import Display, duration, say

    console = Console()
    began = time.monotonic()
    target = Path(out)
    _check_paths(Path(source), images, target, overwrite)
    settings = {
        "freeze": freeze,
        "epochs": epochs,
        "lr": lr,
        "samples": samples,
        "size": size,
        "batch": batch,
        "versions": versions,
        "holdout": holdout,
        "patience": patience,
        "prior": prior,
        "covariance": covariance,
        "minimum": minimum,
        "removable": removable or None,
        "similar_names": similar_names or None,
        "seed": seed,
        "flip": False if no_flip else None,
        "device": device,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    network = {"backbone": backbone, "weights": weights, "options": options, "head": head, "mean": mean, "std": std}
    learner = _new(network, method, given) if images is None else _opened(source, network, method, given)
    known = learner.classes
    data = learner.intake(source if images is None else images)
    counts = data.train.counts()
    found = f"{counted(len(data.classes), 'class')}, {counted(len(data.train), 'image')} to learn from"
    side = learner.preprocessing.size
    say(console, f"{found}, {len(data.held):,} held out; images are brought to {side} x {side} pixels")
    warned = learner.warnings(data)
    for warning in warned:
        say(console, f"warning: {warning}", "yellow")
    if sys.stdin.isatty() and not similar_names:
        learner.settings = _asked(learner, data.classes)
    old = None if joint is None else _old_images(learner, joint)
    few = [name for name, count in counts.items() if count < 5]
    if few and not warned:
        say(console, f"note: {few[0]} has only {counts[few[0]]} to learn from; 30 or more per class work well")
    checked = () if check is None else scan(Path(check)).classes
    before = evaluate_folder(learner.model, check) if check and {*known} & {*checked} else None
    try:
        with Display(console) as display:
            together = None
            if old is not None:
                display.say("joint training, for comparison:")
                learner.monitor = LearningMonitor(display, False)
                together = learner.joint(old, data)
                display.say("the step itself:")
            learner.monitor = LearningMonitor(display, bool(known) and learner.dreams)
            step = learner.learn_intake(data, learner.settings, extend=extend, name=name or "")
    except (TrainingStoppedError, InversionStoppedError) as error:
        say(console, f"remix learn: {error}; nothing was written", "red")
        sys.exit(1)
    try:
        learner.save(target)
    except OSError as error:
        reason = "no space is left on its disk" if error.errno == errno.ENOSPC else os.strerror(error.errno or 0)
        say(console, f"remix learn: {target} could not be written: {reason}; nothing was changed", "red")
        sys.exit(1)
    after = evaluate_folder(learner.model, check) if check and {*learner.classes} & {*checked} else None
    if check and after is None:
        say(console, f"note: {check} has none of the model's classes, so nothing was tested on it")
    for note in learner.notes:
        if note not in warned:
            say(console, f"note: {note}")
    bound = None if together is None else _Bound(together, data.held, check if after is not None else None)
    table = _table(learner.model, step, len(known), before, after, bound)
    if table.row_count:
        console.print(table)
    else:
        say(console, "note: nothing could be tested; --check FOLDER tests on images of your own")
    if bound is not None:
        say(console, _JOINT)
        if after is None:
            say(console, "note: how well the old classes are kept is tested with --check")
    _say_skipped(console, data.skipped + (after.skipped if after is not None else ()))
    megabytes = target.stat().st_size / 2**20
    say(console, f"{target}: {counted(len(learner.classes), 'class')}, {megabytes:.1f} MB, no image in it")
    say(console, f"{duration(time.monotonic() - began)}, peak memory {RunClock().peak >> 20:,} MiB")


def _check_paths(source: Path, images: str | None, out: Path, overwrite: bool) -> None:
    if images is None and source.is_file():
        raise ValueError(f"name the folder of new images too: remix learn {source} NEW_IMAGES/ --out {out}")
    if images is not None and source.is_dir():
        raise ValueError(
            f"{source} is a folder: the model comes first, remix learn model.remix NEW_IMAGES/ --out {out}"
        )
    check_target(source, out, overwrite)


def _new(network: dict[str, str | None], method: str | None, settings: dict[str, Any]) -> Learner:
    from remix.deploy.learner import Learner

    if network["weights"] is not None and network["backbone"] is None:
        raise ValueError("weights do not say what network they belong to: give --backbone (see: remix backbones)")
    return Learner(
        network["backbone"] or "resnet32", method or "auto", weights=network["weights"],
        options=read_options(network["options"]), head=network["head"] or "linear",
        mean=read_numbers("--mean", network["mean"]),
        std=read_numbers("--std", network["std"]), **settings,
    )  # fmt: skip


def _opened(source: str, network: dict[str, str | None], method: str | None, settings: dict[str, Any]) -> Learner:
    from remix.deploy.learner import load

    for option, value in network.items():
        if value is not None:
            raise ValueError(f"--{option} is for the first step; {source} has its network already")
    learner = load(source, **settings)
    if method is not None:
        learner.use_method(method)
    return learner


def _asked(learner: Learner, classes: tuple[str, ...]) -> LearnSettings:
    """The settings, after a question where names of classes differ only in case or spaces."""
    from dataclasses import replace

    from remix.data import DataError
    from remix.deploy.advice import check_similar_names

    try:
        check_similar_names(learner.classes, [name for name in classes if name not in learner.classes])
    except DataError as error:
        if input(f"{error}\nAre they two classes? [y/N] ").strip().lower() not in ("y", "yes"):
            raise
        return replace(learner.settings, similar_names=True)
    return learner.settings


def _old_images(learner: Learner, folder: str) -> Intake:
    """Images for joint training. Raises ValueError where there is nothing to compare with."""
    from remix.deploy.joint import check_old_images

    if not learner.classes:
        raise ValueError("--joint is for a model that learns more classes: the first step has all images anyway")
    old = learner.intake(folder)
    check_old_images(learner.model, old)
    return old


class _Bound:
    """Accuracies of joint training, in percent, on the same images."""

    def __init__(self, learner: Learner, held: ImageDataset, check: str | None) -> None:
        from remix.deploy.evaluation import evaluate_folder

        self.held = learner.evaluate(held).micro if len(held) else None
        self.check = None if check is None else evaluate_folder(learner.model, check)


def _table(
    model: Model, step: LearnStep, old: int, before: Evaluation | None, after: Evaluation | None, bound: _Bound | None
) -> Table:
    from rich.table import Table

    table = Table("classes", "tested on", title="accuracy in percent", title_justify="left")
    for column in ("before", "now", *([] if bound is None else ["joint"])):
        table.add_column(column, justify="right")
    found, new = step.accuracies, len(model.classes) - old
    for what, value in found.items():
        tested = what.removeprefix("new classes, ")
        of = (
            f"all {new}"
            if tested == what
            else f"{new} new"
            if not step.extended
            else f"{len(step.classes)} in the folder"
        )
        together = bound.held if bound is not None and tested == "held-out images" else None
        table.add_row(of, tested, "", f"{value:.1f}", *([] if bound is None else [_percent(together)]))
    if after is not None:
        for what, labels in ((f"{old} old", range(old)), (f"{new} new", range(old, old + new))):
            now = _accuracy(after, labels)
            if now is not None:
                was = _accuracy(before, labels) if before is not None and labels.start == 0 else None
                joint = [] if bound is None or bound.check is None else [_percent(_accuracy(bound.check, labels))]
                table.add_row(what, "--check images", _percent(was), f"{now:.1f}", *joint)
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _accuracy(found: Evaluation, labels: range) -> float | None:
    """Share of the images of these classes that were read right, in percent; None if there are none."""
    counts = [found.of_class(label) for label in labels if label < len(found.classes)]
    images = sum(count for count, _ in counts)
    return 100 * sum(right for _, right in counts) / images if images else None


def _say_skipped(console: Console, skipped: tuple[Skipped, ...]) -> None:
    from remix.data.errors import left_out
    from remix.support.display import say

    if skipped:
        say(console, f"{len(skipped):,} {'were' if len(skipped) > 1 else 'was'} left out:")
    for line in left_out(skipped):
        say(console, f"  {line}")
