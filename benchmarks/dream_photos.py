"""Dreams of the real ImageNet ResNet-34: the same seed, only the prior changed.

    python -m benchmarks.dream_photos --data DIR --cache DIR --out docs/dreams

DIR holds imagenette/ and weights/. Statistics and dreams are kept in the cache; a second run goes on where the first
was stopped. The judge is a ResNet-32 trained by others on CIFAR-10 (weights/cifar10_resnet32.safetensors), which has
never seen a photograph nor the ResNet-34, with a logistic regression on its features of the Imagenette training images:
weak, but independent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import interpolate

from benchmarks.dream_data import IMAGENETTE_NAMES, Images, read_imagenette
from benchmarks.dream_grids import grid
from benchmarks.dream_plan import remember
from benchmarks.dream_scores import likelihood
from benchmarks.features import IMAGENET_MEAN, IMAGENET_STD
from remix.inversion import (
    Knowledge,
    PriorSettings,
    Progress,
    PyramidSettings,
    Scale,
    Targets,
    balanced_labels,
    invert_pyramid,
)
from remix.networks import CifarResNet, Classifier, load_classifier
from remix.statistics import LayerMeter, LayerStatistics, Memory, run_meters

SIZE, JUDGED_SIZE = 112, 64
CLASSES = ("church", "garbage_truck", "golf_ball", "parachute")
MAPS = ("layer1.2:output", "layer2.3:output", "layer3.5:output", "layer4.2:output")
FITTED_ROWS = 400
SETTINGS = PyramidSettings(scales=(Scale(28, 30, 0.05), Scale(56, 50, 0.05), Scale(SIZE, 40, 0.02)), polish=None)
PRIORS = (
    PriorSettings("none"),
    PriorSettings("diagonal", "nll", 5.0),
    PriorSettings("laplace-dct", "nll", 5.0),
    PriorSettings("diagonal", "typical", 5.0),
    PriorSettings("laplace", "typical", 5.0),
    PriorSettings("laplace-dct", "typical", 5.0),
)


def title(prior: PriorSettings) -> str:
    return "none" if prior.kind == "none" else f"{prior.kind}, {prior.form}"


def statistics(classifier: Classifier, data: Path, cache: Path) -> dict[bool, dict[str, LayerStatistics]]:
    """Of the maps at the ends of the four stages, in the coordinates and in the DCT basis (True)."""
    files = {False: cache / "statistics" / "photos", True: cache / "statistics" / "photos-dct"}
    if not files[True].exists():
        images = read_imagenette(data, "train", SIZE)
        mixed = images.take(torch.randperm(len(images), generator=torch.Generator().manual_seed(0)))
        meters = {
            dct: LayerMeter(MAPS, "map", ("laplace",), transform="dct" if dct else None, rows=FITTED_ROWS)
            for dct in files
        }
        print(f"measuring {len(mixed)} photographs", flush=True)
        run_meters(classifier.backbone, mixed.batches(50), list(meters.values()))  # type: ignore[arg-type]
        files[True].parent.mkdir(parents=True, exist_ok=True)
        for dct, meter in meters.items():
            remember(files[dct], meter.statistics())
    return {dct: dict(Memory.load(file).layers) for dct, file in files.items()}


class Judge:
    """Logistic regression on features of a CIFAR-10 network."""

    stages = ("stage_2.4", "stage_3.3", "stage_4.0")

    def __init__(self, data: Path, aside: int) -> None:
        """``aside``: photographs of each class left out of the reference, to be scored in place of dreams."""
        from sklearn.linear_model import LogisticRegression

        backbone = load_classifier("resnet32", data / "weights" / "cifar10_resnet32.safetensors").eval().backbone
        assert isinstance(backbone, CifarResNet)
        self.backbone = backbone
        train, held_out = (read_imagenette(data, part, JUDGED_SIZE) for part in ("train", "val"))
        both = Images(torch.cat([train.pixels, train.pixels.flip(3)]), torch.cat([train.labels, train.labels]))
        rows = self._rows(both.pixels)
        self.mean, self.std = rows.mean(0), rows.std(0)
        self.regression = LogisticRegression(C=0.1, max_iter=2000)
        self.regression.fit(self.features(both.pixels, rows).numpy(), both.labels.numpy())
        rows = self.features(held_out.pixels)
        self.accuracy = self.regression.score(rows.numpy(), held_out.labels.numpy())
        kept = torch.cat([(held_out.labels == label).nonzero()[aside:, 0] for label in held_out.labels.unique()])
        self.real, self.real_labels = rows[kept], held_out.labels[kept]

    @torch.no_grad()
    def _rows(self, pixels: Tensor) -> Tensor:
        parts = []
        for part in interpolate(pixels, (JUDGED_SIZE, JUDGED_SIZE), mode="area").split(50):
            x, pooled = part, []
            for name, block, _ in self.backbone.blocks():
                x = block(x)
                if name in self.stages:
                    pooled.append(x.mean((2, 3)))
            parts.append(torch.cat(pooled, 1))
        return torch.cat(parts)

    def features(self, pixels: Tensor, rows: Tensor | None = None) -> Tensor:
        """Standardised features (N, 224)."""
        return ((self._rows(pixels) if rows is None else rows) - self.mean) / self.std

    def __call__(self, images: Images) -> dict[str, float]:
        """``accuracy`` and ``probability`` of the labels; ``distance`` of class means.

        The distance: from the mean feature of the dreams of a class to that of held-out photographs of it, squared and
        per dimension, averaged over classes. A dozen images are too few for a Frechet distance.
        """
        rows = self.features(images.pixels)
        probabilities = torch.from_numpy(self.regression.predict_proba(rows.numpy()))
        distances = [
            (rows[images.labels == label].mean(0) - self.real[self.real_labels == label].mean(0)).square().mean()
            for label in images.labels.unique()
        ]
        return {
            "accuracy": float((probabilities.argmax(1) == images.labels).double().mean()),
            "probability": float(probabilities[torch.arange(len(rows)), images.labels].mean()),
            "distance": float(torch.stack(distances).mean()),
        }


def dream(
    classifier: Classifier, layers: dict[str, LayerStatistics], prior: PriorSettings, settings: PyramidSettings,
    each: int, seed: int, cache: Path,
) -> Images:  # fmt: skip
    """Dreams of `CLASSES`, ``each`` of every one, from the cache if they are there."""
    steps = sum(scale.steps for scale in settings.scales)
    name = f"{prior.kind}-{prior.form}-w{prior.weight:g}-n{each}-t{steps}-s{seed}.safetensors"
    file = cache / "photos" / name
    if not file.exists():
        labels = balanced_labels([IMAGENETTE_NAMES.index(name) for name in CLASSES], each * len(CLASSES))
        knowledge = Knowledge(classifier.backbone, layers, classifier.head)
        generator = torch.Generator().manual_seed(seed)
        found = invert_pyramid(
            knowledge, Targets(labels), generator, replace(settings, prior=prior), progress=lambda p: say(prior, p)
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        save_file({"images": found.images.half(), "labels": found.labels}, unfinished)
        unfinished.rename(file)
    kept = load_file(file)
    return Images(kept["images"].float(), kept["labels"])


def say(prior: PriorSettings, progress: Progress) -> None:
    step = progress.step
    if (step.step + 1) % 10 == 0:
        values = ", ".join(f"{name} {value:.4g}" for name, value in step.values.items())
        print(f"{title(prior)}: {progress.phase}, step {step.step + 1}/{step.steps}: {values}", flush=True)


def write(out: Path, rows: list[dict[str, Any]], facts: dict[str, Any], columns: dict[str, Images]) -> None:
    """JSON, Markdown and the picture of what there is so far."""
    out.mkdir(parents=True, exist_ok=True)
    record = {"command": "python -m benchmarks.dream_photos " + " ".join(sys.argv[1:]), **facts, "rows": rows}
    (out / "photos.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    lines = [
        "| covariance | form | weight | judge's accuracy, % | judge's probability of the class | "
        "distance of class means | q/D, dct model | q/D, own model | network's accuracy, % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        form, weight = ("-", "-") if row["kind"] == "none" else (row["form"], f"{row['weight']:g}")
        own = "-" if row["own quadratic"] is None else f"{row['own quadratic']:.2f}"
        lines.append(
            f"| {row['kind']} | {form} | {weight} | {100 * row['accuracy']:.0f} | "
            f"{row['probability']:.3f} | {row['distance']:.2f} | {row['quadratic']:.2f} | {own} | "
            f"{100 * row['fooled']:.0f} |"
        )
    (out / "photos.md").write_text("\n".join(lines) + "\n")
    places = [IMAGENETTE_NAMES.index(name) for name in CLASSES]
    relabelled = {
        name: Images(images.pixels, torch.tensor([places.index(int(label)) for label in images.labels]))
        for name, images in columns.items()
    }
    grid(out / "photos.png", relabelled, CLASSES, (IMAGENET_MEAN, IMAGENET_STD), each=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with imagenette/ and weights/")
    parser.add_argument("--cache", type=Path, default=Path("dream-cache"))
    parser.add_argument("--out", type=Path, default=Path("docs/dreams"))
    parser.add_argument("--each", type=int, default=2, help="images per class")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    file = options.data / "weights" / "resnet34_imagenette10_fp16.safetensors"
    classifier = load_classifier("resnet34", file, input_shape=(3, SIZE, SIZE)).eval().requires_grad_(False)
    layers = statistics(classifier, options.data, options.cache)
    judge = Judge(options.data, options.each)
    real = read_imagenette(options.data, "val", SIZE)
    wanted = torch.tensor([IMAGENETTE_NAMES.index(name) for name in CLASSES])
    real = real.take(torch.isin(real.labels, wanted).nonzero()[:, 0])
    few = real.take(torch.cat([(real.labels == label).nonzero()[: options.each, 0] for label in wanted]))
    gains = {
        name: likelihood(classifier.backbone, layers[dct], kind, real.pixels, 30)
        for name, dct, kind in (
            ("diagonal", False, "diagonal"),
            ("laplace", False, "laplace"),
            ("laplace-dct", True, "laplace"),
        )
    }
    facts = {
        "settings": asdict(SETTINGS),
        "seed": options.seed,
        "judge's accuracy on held-out photographs": judge.accuracy,
        f"{options.each} held-out photographs per class in place of dreams, the others as reference": judge(few),
        "held-out photographs under each covariance": gains,
    }
    print(json.dumps({**facts, "settings": ""}, indent=1), flush=True)
    rows: list[dict[str, Any]] = []
    columns = {"held-out photographs": real}
    for prior in PRIORS:
        began = time.perf_counter()
        own = layers[prior.kind == "laplace-dct"]
        images = dream(classifier, own, prior, SETTINGS, options.each, options.seed, options.cache)
        with torch.no_grad():
            fooled = float((classifier(images.pixels).argmax(1) == images.labels).double().mean())
        kind = "laplace" if prior.kind.startswith("laplace") else prior.kind
        rows.append(
            {
                **asdict(prior),
                **judge(images),
                "fooled": fooled,
                "quadratic": likelihood(classifier.backbone, layers[True], "laplace", images.pixels, 30)["quadratic"],
                "own quadratic": None
                if prior.kind == "none"
                else likelihood(classifier.backbone, own, kind, images.pixels, 30)["quadratic"],  # type: ignore[arg-type]
                "seconds": time.perf_counter() - began,
            }
        )
        print(rows[-1], flush=True)
        columns[title(prior)] = images
        write(options.out, rows, facts, columns)


if __name__ == "__main__":
    main()
