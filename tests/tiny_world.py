"""Small stand-ins for the folders and files that documented commands name, so that these can be run in seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from tiny_runs import COMMON, SETTINGS
from written_runs import write_run

from remix.cli import main
from remix.experiments.config import DEFAULT_METHOD

OLD = ("apple", "bear", "church", "golf_ball", "tench")
NEW = ("cat", "dog")
NARROW = ["--options", "width=2", "--size", "32"]
FEWER = ["data.tasks=2", "data.classes=2"]
QUICK = ["--epochs", "1", "--samples", "4", "--batch", "8", "--versions", "1", "--device", "cpu"]

# What a page names, and what takes its place.
STANDS_FOR = {
    "old": ("photos/", "photos/first", "photos/train", "photos/test", "test/", "IMAGES/", "imagenette/train"),
    "new": ("new_photos/", "photos/more", "NEW_IMAGES/"),
    "parts": ("imagenette",),
    "cat.jpg": ("photo.jpg", "cat.jpg"),
    "tiny.remix": ("photos.remix", "model.remix", "model2.remix", "one.remix", "nette.remix", "NAME.remix"),
    "maps.remix": ("maps.remix",),
    "exact.remix": ("animals.remix",),
    "dreams.safetensors": ("dreams.safetensors",),
    "weights.safetensors": ("resnet34.safetensors", "resnet34_imagenette10_fp16.safetensors"),
    "data": ("DIR", "~/data"),
}
PLACEHOLDERS = {"NAME": "digits", "M": "remix", "S": "0", "TARGET": "memory", "PRIOR": "laplace"}


def make_world(root: Path) -> Path:
    """Photographs of seven classes, a narrow ResNet-34 of five of them, models, dreams and runs."""
    _photographs(root / "old", OLD)
    _photographs(root / "new", NEW)
    _photographs(root / "parts" / "train", OLD)
    _photographs(root / "parts" / "val", OLD, first=4)
    _photograph(root / "cat.jpg", 0)
    (root / "data").mkdir()
    shutil.copy(Path(__file__).parent / "learning" / "files" / "model-v2.remix", root / "small.remix")
    old, tiny, weights = str(root / "old"), str(root / "tiny.remix"), str(root / "weights.safetensors")
    main(["learn", old, "--backbone", "resnet34", *NARROW, *QUICK, "--freeze", "last-stage", "--out", tiny])
    main(["export", tiny, "--format", "safetensors", "--out", weights])
    first, exact = str(root / "first.remix"), str(root / "exact.remix")
    main(["learn", old, "--weights", weights, "--backbone", "resnet34", *NARROW, "--out", first])
    main(["learn", first, str(root / "new"), "--out", exact])
    measured = ["--weights", weights, "--backbone", "resnet34", *NARROW, "--views", "map", "--maps", "stages"]
    main(["measure", old, *measured, "--kinds", "laplace,laplace-paper", "--out", str(root / "maps.remix")])
    main(["dream", tiny, "--count", "2", "--steps", "2", "--out", str(root / "dreams.png")])
    for method in ("finetune", "remix"):
        write_run(root / "runs" / f"digits-{method}-seed0", method, names=("0", "1", "2"))
    return root


def in_world(words: list[str], world: Path) -> list[str]:
    """The words of a command with everything it reads taken from the world; what it writes keeps its name."""
    stands = {name: str(world / made) for made, names in STANDS_FOR.items() for name in names} | PLACEHOLDERS
    if words[1] == "export":  # the exporter of torch takes long for a ResNet-34, however narrow
        stands["photos.remix"] = str(world / "small.remix")
    changed: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before == "--out":
            changed.append(word)
        elif word.split("/")[0] == "runs":
            found = [str(world / word)] if "*" not in word else sorted(map(str, world.glob(word)))
            changed += found or [word]
        else:
            changed.append(stands.get(word, word))
    return changed


def shortened(words: list[str]) -> list[str]:
    """The words with others added that make the command small: few epochs, steps and images, a narrow network."""
    name, more = words[1], []
    if name in ("learn", "measure", "dream") and "resnet34" in words:
        more += NARROW
    elif name == "learn" and not any(word.endswith(".remix") for word in words[2:4]):
        more += ["--options", "width=2"]
    if name == "learn":
        more += QUICK
    elif name in ("dream", "audit"):
        more += ["--steps", "2", "--count", "1"]
    elif name == "run" and "--dry-run" not in words:
        method = words[words.index("--method") + 1] if "--method" in words else DEFAULT_METHOD
        small = ["network.options.width=2", "batch_size=8"] if Path(words[2]).is_dir() else [*COMMON, *FEWER]
        more += ["--set", *small, *SETTINGS[method]]
    elif name == "sweep":
        more += ["--dry-run"]  # tests/experiments/test_sweep.py has sweeps that run
    return [*words, *more]


def _photographs(folder: Path, classes: tuple[str, ...], first: int = 0) -> None:
    for number, name in enumerate(classes):
        for image in range(first, first + 5):
            _photograph(folder / name / f"{image}.jpg", 100 * number + image)


def _photograph(path: Path, seed: int) -> None:
    """A smooth coloured picture, another one for every seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((40, 36), Image.Resampling.BICUBIC).save(path)
