"""Dreams of photographs from the same noise, held to a diagonal and to Laplace covariances of whole maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remix.deploy.adoption import model_of_weights
from remix.deploy.dream_files import DreamFiles, SavedDream, load_dream
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.figures import GridRow, save_grid
from remix.inversion import PriorKind
from remix.learning import load_model
from remix.learning.team import as_device
from remix.reproduce.targets import Listener, Reproduction
from remix.support.files import write_text
from remix.support.text import as_csv, as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = ("data", "weights")
CLASSES = ("church", "garbage_truck", "golf_ball", "parachute")
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
    train = _photographs(Path(wanted.data))
    size, count, steps = _SIZES[wanted.scale]
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
            options = DreamOptions(CLASSES, count, "pyramid", prior, steps=steps)
            plan = make_plan(load_model(model).to(as_device("auto")), options)
            if not listener.dream(plan, files, resume):
                return False
        dreams[prior] = load_dream(files.tensors)
    _write(wanted, dreams, size, steps, listener)
    return True


def _photographs(root: Path) -> Path:
    """The folder of training photographs. Raises ValueError if it lacks a class."""
    found = next((folder for folder in (root / "train", root / "imagenette" / "train") if folder.is_dir()), None)
    missing = [name for name in CLASSES if found is None or not (found / name).is_dir()]
    if found is None or missing:
        raise ValueError(
            f"--data {root} must have train/ or imagenette/train/ with photographs of {', '.join(CLASSES)}"
        )
    return found


def _write(
    wanted: Reproduction, dreams: dict[PriorKind, SavedDream], size: int, steps: int, listener: Listener
) -> None:
    rows: list[dict[str, Any]] = []
    shown: list[GridRow] = []
    for name in CLASSES:
        for prior, dream in dreams.items():
            mine = dream.images[dream.labels == dream.classes.index(name)]
            right = dream.about["read_right"][name]
            rows.append({"class": name, "prior": prior, "images": len(mine), "read as it": right})
            remark = f"{name.replace('_', ' ')}, {right} of {len(mine)} read as it"
            shown.append(GridRow(prior, mine[:_SHOWN], remark))
    write_text(wanted.out / "samples.csv", as_csv(rows))
    save_grid(
        wanted.out / "samples.png", shown, f"the same noise, {size} pixels, {steps} steps; only the prior differs"
    )
    lines = []
    for prior, (_, words) in _PRIORS.items():
        right, images = (sum(row[key] for row in rows if row["prior"] == prior) for key in ("read as it", "images"))
        lines.append([prior, words, f"{right} of {images}"])
    text = "\n".join([
        f"Scale `{wanted.scale}`: {size} pixels, {steps} steps. Look at samples.png: what an inverted network",
        "says of its own dreams means little. A judge of another kind, more images and seeds: docs/dream_results.md.",
        "", as_markdown(["prior", "what it is", "read as their class by the network itself"], lines, left=2),
    ])  # fmt: skip
    write_text(wanted.out / "samples.md", text + "\n")
    listener.say(text)
    listener.say(f"written  {wanted.out}/samples.png, samples.csv, samples.md")
