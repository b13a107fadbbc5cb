"""`remix audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from remix.cli.output import note, note_left_out, show
from remix.cli.parser import split_words
from remix.support.text import printable

if TYPE_CHECKING:
    from torch import Tensor

    from remix.data import ImageDataset
    from remix.deploy.dream_options import DreamOptions
    from remix.inversion import Progress
    from remix.learning import Model

__all__ = ["audit"]

_MOST = 2000  # held-out images; more would not change a quantile


def audit(
    model: str,
    *,
    train: str,
    held_out: str | None = None,
    dreams: str | None = None,
    classes: str | None = None,
    count: int = 8,
    strategy: Literal["layerwise", "pixels", "pyramid", "generator"] | None = None,
    steps: int | None = None,
    seed: int = 0,
    out: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> None:
    """Whether dreams of a model are nearer to its training images than other images of the same kind are.

    For those who still have the training images: measures the distance from every dream to the nearest of them, and
    the same for held-out images, in pixels and in the network's features, and says what may be concluded.

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it (NAME.remix).
        train: Folder of the training images, one sub-folder per class.
        held_out: Folder of images that the model was not trained on; by default the test part of --train, if it has
            one. Without any, training images are compared with each other.
        dreams: File of dreams that remix dream wrote (NAME.safetensors), instead of dreaming now.
        classes: Classes to dream of, names separated by commas; all by default, of more than ten the first ten.
        count: Dreams per class.
        strategy: How images are dreamed: layerwise, pixels, pyramid or generator; chosen as by remix dream by default,
            whose help explains them.
        steps: Steps of the longest phase of a dream, as of remix dream.
        seed: Number from which the dreams begin; the same seed gives the same dreams.
        out: Figure of the nearest pairs to write, NAME.png; the numbers go to NAME.json.
        device: Where to compute: auto (a GPU if there is one), cpu, cuda, mps, ...
        overwrite: Replace files that exist.

    Examples:
        remix audit photos.remix --train photos/train --held-out photos/test --out audit.png
        remix audit photos.remix --train photos --dreams grid.safetensors
    """
    from remix.deploy.audit import audit as compare
    from remix.deploy.audit_report import audit_table, write_report
    from remix.deploy.dream_options import DreamOptions
    from remix.learning import load_model
    from remix.learning.team import as_device

    named = None if classes is None else tuple(split_words(classes))
    options = DreamOptions(named, count, strategy, steps=steps, seed=seed)
    figure = None if out is None else Path(out)
    if figure is not None:
        if figure.suffix != ".png":
            raise ValueError(f"--out must end in .png, got {out}")
        for file in (figure, figure.with_suffix(".json")):
            if file.exists() and not overwrite:
                raise ValueError(f"{printable(file)} is there already: --overwrite replaces it")
        figure.parent.mkdir(parents=True, exist_ok=True)
    opened = load_model(model).to(as_device(device))
    trained, reference = _images(opened, train, held_out)
    dreamt, names = _saved(dreams, opened) if dreams else _dream(opened, options)
    images, labels = trained.batch(range(len(trained)))
    if reference is None:
        result = compare(opened, dreamt, images)
    else:
        unseen, others = reference.batch(_some(len(reference)))
        known = _labels(opened, trained, labels), _labels(opened, reference, others)
        result = compare(opened, dreamt, images, unseen, known)
    show(audit_table(result))
    show("\n" + result.conclusion())
    if result.membership is not None:
        show(
            "Without any dream: the network is surer of the class of a training image than of that of a held-out one "
            f"in {100 * result.membership:.1f}% of pairs (50% is chance)."
        )
    if figure is not None:
        numbers = write_report(figure, result, dreamt, names, images)
        show(f"{printable(figure)}  the dreams that are nearest to training images, and those images")
        show(f"{printable(numbers)}  the numbers")


def _images(model: Model, train: str, held_out: str | None) -> tuple[ImageDataset, ImageDataset | None]:
    """Training images, and held-out ones if there are any."""
    trained, test = _folder(model, train)
    if held_out is not None:
        first, second = _folder(model, held_out)
        test = second if len(second) else first
    if not len(test):
        note("no held-out images: training images are compared with each other instead (--held-out gives some)")
    return trained, test if len(test) else None


def _folder(model: Model, folder: str) -> tuple[ImageDataset, ImageDataset]:
    from remix.data import load

    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}: give one that has a sub-folder of images for every class")
    prepared = model.preprocessing
    splits = load(
        "folder", folder, size=prepared.size, channels=prepared.channels, holdout=0.0,
        normalisation=prepared.normalisation,
    )  # fmt: skip
    note_left_out(splits.skipped)
    return splits.train, splits.test


def _labels(model: Model, data: ImageDataset, labels: Tensor) -> Tensor:
    """The model's labels of images, -1 for classes that it does not know."""
    places = {name: label for label, name in enumerate(model.classes)}
    return labels.new_tensor([places.get(name, -1) for name in data.classes])[labels]


def _some(count: int) -> Tensor:
    """Places of held-out images, by chance."""
    import torch

    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:_MOST]


def _saved(path: str, model: Model) -> tuple[Tensor, list[str]]:
    from remix.deploy.dream_files import load_dream

    saved = load_dream(path)
    if tuple(saved.images.shape[1:]) != model.preprocessing.shape:
        shape = tuple(saved.images.shape[1:])
        raise ValueError(f"the dreams in {path} are {shape}, the model takes {model.preprocessing.shape}")
    if not saved.about.get("finished", True):
        note(f"the dreams in {path} are of a run that was interrupted: half-made ones lie farther from any image")
    return _bytes(saved.images), [saved.classes[label] for label in saved.labels.tolist()]


def _dream(model: Model, options: DreamOptions) -> tuple[Tensor, list[str]]:
    from rich.console import Console

    from remix.deploy.dream_plan import make_plan
    from remix.deploy.dreaming import describe, pixels
    from remix.support.display import Display

    plan = make_plan(model, options)
    note(f"{len(plan.labels)} dreams: {describe(plan)}")
    work = plan.work()
    with Display(Console(stderr=True)) as display:

        def progress(step: Progress) -> None:
            before = sum(work[: step.number])
            done = (before + work[step.number] * (step.step.step + 1) / step.step.steps) / sum(work)
            display.show(step.phase, done, {}, last=done >= 1)

        dream = plan.run(progress)
    if not dream.finished:
        raise KeyboardInterrupt
    return _bytes(pixels(model, dream.images)), [model.classes[label] for label in dream.labels.tolist()]


def _bytes(images: Tensor) -> Tensor:
    return (images.detach().cpu().clamp(0, 1) * 255).round().byte()
