"""Dreams of photographs from the same noise, held to a diagonal and to Laplace covariances of whole maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from remix.deploy.adoption import model_of_weights
from remix.deploy.dream_files import DreamFiles, SavedDream, load_dream
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.figures import GridRow, save_grid
from remix.inversion import Form, PriorKind
from remix.inversion.statistics_losses import FORMS
from remix.learning import load_model
from remix.learning.team import as_device
from remix.reproduce.photographs import PAPER_CLASSES, count_images, find_photographs, parse_classes
from remix.reproduce.targets import Listener, Reproduction
from remix.support.files import write_text
from remix.support.text import as_csv, as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = ("data", "weights", "classes", "form", "dry_run")
_CLASSES = {"mini": ("church", "garbage_truck", "golf_ball", "parachute"), "paper": tuple(PAPER_CLASSES)}
_FORM: dict[str, Form] = {"mini": "typical", "paper": "nll"}  # the paper's is the likelihood itself
# Side in pixels, images per class, steps of the longest phase (the paper: 50 images of a class, 2,000 steps).
_SIZES = {"mini": (112, 3, 200), "paper": (224, 50, 2000)}
_SHOWN = 6  # images of a class and prior in the figure, at most
_PRIORS: dict[PriorKind, tuple[str, str]] = {
    "diagonal": ("none", "a variance for every place of a map, no correlations: as the paper's baseline"),
    "laplace": ("none", "a Laplace covariance over whole maps: as the paper's method"),
    "laplace-dct": ("dct", "the same behind a cosine transform: ours"),
}


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    wanted.needs("data", "weights")
    assert wanted.data is not None
    assert wanted.weights is not None
    classes = parse_classes(wanted.classes) or _CLASSES[wanted.scale]
    size, count, steps = _SIZES[wanted.scale]
    form = _form(wanted)
    train = find_photographs(wanted.data, classes, ["train"]) / "train"
    if not Path(wanted.weights).is_file():
        raise ValueError(f"--weights {wanted.weights}: there is no such file")
    asked = {prior: DreamOptions(classes, count, "pyramid", prior, form, steps=steps) for prior in _PRIORS}
    for prior, options in asked.items():
        _check_kept(wanted.out / f"{prior}.safetensors", options)
    _tell_plan(wanted, train, asked, size, listener)
    if wanted.dry_run:
        return True
    wanted.out.mkdir(parents=True, exist_ok=True)
    dreams: dict[PriorKind, SavedDream] = {}
    for prior, (transform, _) in _PRIORS.items():
        model = wanted.out / f"model-{transform}.remix"
        if not model.exists():
            bare = model_of_weights(wanted.weights, "resnet34", size=size).to(as_device("auto"))
            kept = None if transform == "none" else "dct"
            listener.measure(bare, train, model, views=("map",), maps=("stages",), transform=kept)
        files = DreamFiles.at(wanted.out / f"{prior}.png")
        resume = files.checkpoint.exists()
        if resume or not files.tensors.exists():
            files.prepare(overwrite=False, resume=resume)
            plan = make_plan(load_model(model).to(as_device("auto")), asked[prior])
            if not listener.dream(plan, files, resume):
                return False
        dreams[prior] = load_dream(files.tensors)
    _write(wanted, dreams, classes, f"{size} pixels, {steps} steps", listener)
    return True


def _form(wanted: Reproduction) -> Form:
    """The form of the prior. Raises ValueError for one that whole maps do not have."""
    forms = [form for form in FORMS if form != "frobenius"]  # that one needs the matrix itself
    if wanted.form is None:
        return _FORM[wanted.scale]
    if wanted.form not in forms:
        raise ValueError(f"--form of a prior on whole maps is one of {', '.join(forms)}, got {wanted.form!r}")
    return cast(Form, wanted.form)


def _check_kept(file: Path, options: DreamOptions) -> None:
    """Raise ValueError if a dream of another request is there already."""
    if not file.exists():
        return
    about = load_dream(file).about.get("request", {})
    kept = (about.get("classes"), about.get("count"), about.get("settings", {}).get("prior", {}).get("form"))
    if kept != (list(options.classes or ()), options.count, options.form):
        raise ValueError(f"{file} is of other classes or another form of the prior: choose another --out")


def _tell_plan(
    wanted: Reproduction, train: Path, asked: dict[PriorKind, DreamOptions], size: int, listener: Listener
) -> None:
    """What is measured and dreamed, and what of it is there."""
    folders = sorted(folder for folder in train.iterdir() if folder.is_dir())
    photographs = f"{sum(map(count_images, folders)):,} photographs of {len(folders)} classes"
    rows = []
    for transform in dict.fromkeys(transform for transform, _ in _PRIORS.values()):
        there = (wanted.out / f"model-{transform}.remix").exists()
        behind = "" if transform == "none" else f" behind {transform}"
        rows.append([f"measure maps{behind}", photographs, f"{size} pixels", "there" if there else "to do"])
    for prior, options in asked.items():
        images = f"{options.count * len(options.classes or ())} of {', '.join(options.classes or ())}"
        there = (wanted.out / f"{prior}.safetensors").exists()
        work = f"{options.steps} steps at full size, form {options.form}"
        rows.append([f"dream, prior {prior}", images, work, "there" if there else "to do"])
    listener.plan(["part", "images", "work", "state"], rows)


def _write(
    wanted: Reproduction, dreams: dict[PriorKind, SavedDream], classes: Sequence[str], work: str, listener: Listener
) -> None:
    rows: list[dict[str, Any]] = []
    shown: list[GridRow] = []
    for name in classes:
        for prior, dream in dreams.items():
            mine = dream.images[dream.labels == dream.classes.index(name)]
            right = dream.about["read_right"][name]
            rows.append({"class": name, "prior": prior, "images": len(mine), "read as it": right})
            remark = f"{PAPER_CLASSES.get(name, name).replace('_', ' ')}, {right} of {len(mine)} read as it"
            shown.append(GridRow(prior, mine[:_SHOWN], remark))
    write_text(wanted.out / "samples.csv", as_csv(rows))
    save_grid(wanted.out / "samples.png", shown, f"the same noise, {work}; only the prior differs")
    lines = []
    for prior, (_, words) in _PRIORS.items():
        right, images = (sum(row[key] for row in rows if row["prior"] == prior) for key in ("read as it", "images"))
        lines.append([prior, words, f"{right} of {images}"])
    text = "\n".join([
        f"Scale `{wanted.scale}`: {work}. Look at samples.png: what an inverted network",
        "says of its own dreams means little. A judge of another kind, more images and seeds: docs/dream_results.md.",
        "", as_markdown(["prior", "what it is", "read as their class by the network itself"], lines, left=2),
    ])  # fmt: skip
    write_text(wanted.out / "samples.md", text + "\n")
    listener.say(text)
    listener.say(f"written  {wanted.out}/samples.png, samples.csv, samples.md")
