"""`remix audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from remix.cli.output import note, note_left_out, show
from remix.cli.parser import split_words
from remix.support.text import printable

if TYPE_CHECKING:
    from remix.data import ImageDataset
    from remix.deploy.dream_options import DreamOptions
    from remix.inversion import Progress
    from remix.learning import Model

__all__ = ["audit"]


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
    from remix.deploy.audit import audit_data, audit_table, write_report
    from remix.deploy.dream_options import DreamOptions
    from remix.deploy.inspection import single_images
    from remix.deploy.measuring import read_folder
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
    for sentence in single_images(opened):
        note(sentence)
    trained = read_folder(train, opened.preprocessing)
    note_left_out(trained.skipped)
    reference = trained.test
    if held_out is not None:
        other = read_folder(held_out, opened.preprocessing)
        note_left_out(other.skipped)
        reference = other.test if len(other.test) else other.train
    if not len(reference):
        note("no held-out images: training images are compared with each other instead (--held-out gives some)")
    dreamed = _saved(dreams, opened) if dreams else _dream(opened, options)
    result = audit_data(opened, dreamed, trained.train, reference if len(reference) else None)
    show(audit_table(result))
    show("\n" + result.conclusion())
    if result.membership is not None:
        show(
            "Without any dream: the network is surer of the class of a training image than of that of a held-out one "
            f"in {100 * result.membership:.1f}% of pairs (50% is chance)."
        )
    if figure is not None:
        numbers = write_report(figure, result, dreamed, trained.train)
        show(f"{printable(figure)}  the dreams that are nearest to training images, and those images")
        show(f"{printable(numbers)}  the numbers")


def _saved(path: str, model: Model) -> ImageDataset:
    from remix.deploy.dream_files import load_dream

    saved = load_dream(path)
    shape = tuple(saved.images.shape[1:])
    if shape != model.preprocessing.shape:
        raise ValueError(f"the dreams in {path} are {shape}, the model takes {model.preprocessing.shape}")
    if not saved.about.get("finished", True):
        note(f"the dreams in {path} are of a run that was interrupted: half-made ones lie farther from any image")
    return saved.data()


def _dream(model: Model, options: DreamOptions) -> ImageDataset:
    from rich.console import Console

    from remix.deploy.dream_plan import make_plan
    from remix.support.display import Display

    plan = make_plan(model, options)
    note(f"{len(plan.labels)} dreams: {plan.title()}")
    with Display(Console(stderr=True)) as display:

        def progress(step: Progress) -> None:
            done = plan.done(step)
            display.show(step.phase, done, {}, last=done >= 1)

        return plan.images(progress)
