"""Dreams of photographs from the same noise, as the paper makes them: without a prior, and held to whole feature maps.

With ``vit`` the network is a transformer: means and variances of all tokens, and of four places a prior.

Each class is measured and dreamed alone. Every row matches, besides BatchNorm's statistics, mean and variance of every
element of the maps at the ends of the stages; the priors add the likelihood of these maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from remix.deploy.adoption import model_of_weights
from remix.deploy.dream_files import DreamFiles, SavedDream, load_dream
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.figures import GridRow, save_grid
from remix.deploy.measuring import read_folder
from remix.inversion import Form, PriorKind
from remix.inversion.statistics_losses import FORMS
from remix.learning import Model, load_model
from remix.learning.team import as_device
from remix.networks.probe import evaluating
from remix.reproduce.photographs import PAPER_CLASSES, count_images, find_photographs, layout, parse_classes
from remix.reproduce.targets import Listener, Reproduction
from remix.support.files import write_text
from remix.support.text import as_csv, as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = ("data", "weights", "vit", "classes", "form", "dry_run")
_CLASSES = {"mini": ("church", "garbage_truck", "golf_ball", "parachute"), "paper": tuple(PAPER_CLASSES)}
# Side in pixels, images per class, steps of the longest phase.
_SIZES = {"mini": (112, 4, 200), "paper": (224, 50, 2000)}
_VIT_SIZES = {"mini": (112, 4, 60), "paper": (224, 50, 3000)}
_SHOWN = 6  # images of a class and prior in the figure, at most
_WEIGHT = 4 * 5.0  # of the mean over the four maps: the paper's 5 of their sum
_PRIORS: dict[PriorKind, str] = {
    "none": "no prior: the paper's baseline",
    "laplace-paper": "Laplace covariances of whole maps, fitted by Frobenius distance in 50 epochs: the paper's",
    "laplace-dct": "the same behind a cosine transform, fitted by likelihood: ours",
}
_VIT_PRIORS: dict[PriorKind, str] = {
    "none": "no prior: the diagonal baseline",
    "laplace": "Laplace covariances of the channels of tokens after every quarter of the blocks: ours",
}
_JUDGED = "read as it by another network"
_OUTPUTS = {"n02113978": 268, "n04285008": 817, "n01882714": 105, "n03457902": 580}  # of 1,000, the paper's classes


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    wanted.needs("data", *(["weights"] if wanted.vit is None else []))
    assert wanted.data is not None
    classes = parse_classes(wanted.classes) or _CLASSES[wanted.scale]
    form = _form(wanted.form)
    train = find_photographs(wanted.data, classes, ["train"]) / "train"
    if wanted.weights is not None and not Path(wanted.weights).is_file():
        raise ValueError(f"--weights {wanted.weights}: there is no such file")
    for name, prior in product(classes, _priors(wanted)):
        _check_kept(_files(wanted, name, prior).tensors, _sizes(wanted)[1], form)
    _tell_plan(wanted, train, classes, form, listener)
    if wanted.dry_run:
        return True
    wanted.out.mkdir(parents=True, exist_ok=True)
    dreams: dict[tuple[str, PriorKind], SavedDream] = {}
    for name in classes:
        model = _measured(wanted, train, name, listener)
        for prior in _priors(wanted):
            dream = _dreamed(wanted, model, name, prior, form, listener)
            if dream is None:
                return False
            dreams[name, prior] = dream
    judged = _judged(wanted, train, dreams)
    _write(wanted, dreams, judged, form, listener)
    return True


def _sizes(wanted: Reproduction) -> tuple[int, int, int]:
    """Side in pixels, images per class, steps of the longest phase."""
    return (_SIZES if wanted.vit is None else _VIT_SIZES)[wanted.scale]


def _priors(wanted: Reproduction) -> dict[PriorKind, str]:
    """Kinds with what they are."""
    return _PRIORS if wanted.vit is None else _VIT_PRIORS


def _form(asked: str | None) -> Form:
    """The form of the prior, by default the paper's. Raises ValueError for one that whole maps do not have."""
    forms = [form for form in FORMS if form != "frobenius"]  # that one needs the matrix itself
    if asked is not None and asked not in forms:
        raise ValueError(f"--form of a prior on whole maps is one of {', '.join(forms)}, got {asked!r}")
    return cast(Form, asked or "nll")


def _files(wanted: Reproduction, name: str, prior: PriorKind) -> DreamFiles:
    return DreamFiles.at(wanted.out / f"{name}-{prior}.png")


def _check_kept(file: Path, count: int, form: Form) -> None:
    """Raise ValueError if a dream of another request is there already."""
    if not file.exists():
        return
    kept = load_dream(file).about["request"]
    if (kept["count"], kept["settings"]["prior"]["form"]) != (count, form):
        raise ValueError(f"{file} is of another scale or another form of the prior: choose another --out")


def _measured(wanted: Reproduction, train: Path, name: str, listener: Listener) -> Path:
    """The model with statistics of the maps of one class, both fits among them; measured unless it is there."""
    model = wanted.out / f"{name}.remix"
    if model.exists():
        return model
    size = _sizes(wanted)[0]
    if wanted.vit is not None:
        vit = model_of_weights(None, f"hf:{wanted.vit}", {"view": "token-channels"}, size=size)
        listener.measure(
            vit.to(as_device("auto")),
            train,
            model,
            names=_names(vit.classes, name),
            classes=(name,),
            views=("token-channels",),
            maps=("stages",),
        )
        return model
    assert wanted.weights is not None
    listener.measure(
        model_of_weights(wanted.weights, "resnet34", size=size).to(as_device("auto")),
        train,
        model,
        classes=(name,),
        kinds=("laplace", "laplace-paper"),
        views=("map",),
        maps=("stages",),
        transform="dct",
        rows=max(2, count_images(train / name)),
    )
    return model


def _names(outputs: Sequence[str], name: str) -> tuple[str, ...]:
    """Of the outputs of a head, that which stands for a class called as its folder, the others by number.

    Raises:
        ValueError: if none does.

    """
    told = [words.partition(",")[0].lower().replace(" ", "_") for words in outputs]
    if name not in told and name not in _OUTPUTS:
        raise ValueError(f"the transformer has no class {name!r}: call folders as it calls its classes (golf_ball)")
    place = told.index(name) if name in told else _OUTPUTS[name]
    return tuple(name if number == place else f"output {number}" for number in range(len(outputs)))


def _judged(wanted: Reproduction, train: Path, dreams: Mapping[tuple[str, PriorKind], SavedDream]) -> dict[Any, int]:
    """Of the dreams of a transformer, how many another network reads as their class; nothing without ``weights``.

    What it calls a class is what it says most often about the photographs of it.
    """
    if wanted.vit is None or wanted.weights is None:
        return {}
    judge = model_of_weights(wanted.weights, "resnet34", size=224).to(as_device("auto"))
    normalisation = judge.preprocessing.normalisation
    called = {}
    for name in dict.fromkeys(name for name, _ in dreams):
        data = read_folder(train, judge.preprocessing, (name,)).train
        called[name] = int(_read(judge, normalisation.normalise(data.batch(torch.arange(len(data)))[0])).mode().values)
    found = {}
    for (name, prior), dream in dreams.items():
        images = interpolate(dream.images.float(), (224, 224), mode="bilinear", antialias=True)
        images = (255 * images).round().clamp(0, 255).byte()
        found[name, prior] = int((_read(judge, normalisation.normalise(images)) == called[name]).sum())
    return found


@torch.no_grad()
def _read(model: Model, images: Tensor) -> Tensor:
    """Outputs (N,) that images are read as."""
    with evaluating(model.classifier):
        return torch.cat([model.classifier(part.to(as_device("auto"))).argmax(1).cpu() for part in images.split(25)])


def _dreamed(
    wanted: Reproduction, model: Path, name: str, prior: PriorKind, form: Form, listener: Listener
) -> SavedDream | None:
    """The images of one class, all in one batch; dreamed unless they are there. None if that was interrupted."""
    files = _files(wanted, name, prior)
    resume = files.checkpoint.exists()
    if resume or not files.tensors.exists():
        _, count, steps = _sizes(wanted)
        files.prepare(overwrite=False, resume=resume)
        options = DreamOptions((name,), count, "pyramid", prior, form, _WEIGHT, steps, batch=count)
        if not listener.dream(make_plan(load_model(model).to(as_device("auto")), options), files, resume):
            return None
    return load_dream(files.tensors)


def _tell_plan(wanted: Reproduction, train: Path, classes: Sequence[str], form: Form, listener: Listener) -> None:
    """Where photographs are, what is measured and dreamed, and what of it is there."""
    listener.say(f"{train.parent} has {layout(classes, ('train',))}; each class is measured and dreamed alone")
    size, count, steps = _sizes(wanted)
    photographs = " + ".join(f"{count_images(train / name):,}" for name in classes)
    models = [wanted.out / f"{name}.remix" for name in classes]
    rows = [["measure and fit", f"{photographs} photographs", f"{size} pixels", _state(models)]]
    for prior, words in _priors(wanted).items():
        term = "" if prior == "none" else f"; 5 x sum over 4 maps of {form}"
        files = [_files(wanted, name, prior).tensors for name in classes]
        rows.append([f"dream, {prior}", f"{count} of each class", f"{steps} steps; {words}{term}", _state(files)])
    listener.plan(["part", "images", "work", "state"], rows)


def _state(files: Sequence[Path]) -> str:
    there = sum(file.exists() for file in files)
    return "there" if there == len(files) else f"{there} of {len(files)} there" if there else "to do"


def _write(
    wanted: Reproduction,
    dreams: dict[tuple[str, PriorKind], SavedDream],
    judged: dict[Any, int],
    form: Form,
    listener: Listener,
) -> None:
    size, count, steps = _sizes(wanted)
    rows: list[dict[str, Any]] = []
    shown: list[GridRow] = []
    for (name, prior), dream in dreams.items():
        right = dream.about["read_right"][name]
        row = {"class": name, "prior": prior, "images": len(dream.images), "read as it": right}
        rows.append({**row, **({_JUDGED: judged[name, prior]} if judged else {})})
        remark = f"{PAPER_CLASSES.get(name, name).replace('_', ' ')}, {right} of {len(dream.images)} read as it"
        remark += f", {judged[name, prior]} by another network" if judged else ""
        shown.append(GridRow(prior, dream.images[:_SHOWN], remark))
    write_text(wanted.out / "samples.csv", as_csv(rows))
    work = f"{size} pixels, {count} images of a class at once, {steps} steps at full size, form {form}"
    save_grid(wanted.out / "samples.png", shown, f"the same noise; only the prior differs  ·  {work}")
    lines = []
    for prior, words in _priors(wanted).items():
        mine = [row for row in rows if row["prior"] == prior]
        keys = ["read as it", *([_JUDGED] if judged else [])]
        images = sum(row["images"] for row in mine)
        lines.append([prior, words, *(f"{sum(row[key] for row in mine)} of {images}" for key in keys)])
    heads = [
        "prior",
        "what it is",
        "read as their class by the network itself",
        *(["by another network"] if judged else []),
    ]
    text = "\n".join([
        f"Scale `{wanted.scale}`: {work}; the prior is 5 times the sum over four places.",
        "Look at samples.png: what an inverted network says of its own dreams means little. A judge of another kind,",
        "more images and seeds: docs/dreams/results.md.",
        "", as_markdown(heads, lines, left=2),
    ])  # fmt: skip
    write_text(wanted.out / "samples.md", text + "\n")
    listener.say(text)
    listener.say(f"written  {wanted.out}/samples.png, samples.csv, samples.md")
