"""What is dreamed in the quality benchmark: every prior and form, with one budget for all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file

from benchmarks.dream_data import Images
from benchmarks.features import CIFAR_MEAN, CIFAR_STD
from remix.inversion import (
    Augmentation,
    Form,
    Knowledge,
    LayerwiseSettings,
    PriorKind,
    PriorSettings,
    Progress,
    PyramidSettings,
    Scale,
    Schedule,
    Targets,
    balanced_labels,
    feature_targets,
    invert_layerwise,
    invert_pyramid,
)
from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.networks import Classifier
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    Laplace,
    LayerMeter,
    LayerStatistics,
    Memory,
    batchnorm_points,
    block_input_points,
    feature_point,
    run_meters,
)

Place = Literal["channels", "maps"]
Strategy = Literal["layerwise", "published", "pyramid"]
_PLACES: tuple[tuple[Place, bool], ...] = (("channels", False), ("maps", False), ("maps", True))
PART = 60  # images inverted together
MAPS = ("stage_1.4:output", "stage_2.4:output", "stage_4.0:output")

LAYERWISE = LayerwiseSettings(
    block=Schedule(8, 0.8), refine=Schedule(72, 0.4, warm_up=5, milestones=(36, 54)), batch=PART
)
PUBLISHED = LayerwiseSettings(batch=PART)
PYRAMID = PyramidSettings(
    scales=(Scale(8, 20, 0.05), Scale(16, 20, 0.05), Scale(32, 30, 0.03)),
    polish=None,
    augmentation=Augmentation(jitter=2, flip=0.5),
    mean=CIFAR_MEAN,
    std=CIFAR_STD,
    blur_every=0,
    batch=PART,
)


@dataclass(frozen=True)
class Plan:
    """One line of the table: where the prior looks, which covariance it has, in which form it enters."""

    strategy: Strategy
    place: Place
    kind: PriorKind | Literal["diagonal-dct"]
    form: Form

    @property
    def prior_kind(self) -> PriorKind:
        """What the engine calls it: a diagonal in the DCT basis is a Laplace covariance there without correlations."""
        return "laplace-dct" if self.kind == "diagonal-dct" else self.kind

    @property
    def name(self) -> str:
        return (
            f"{self.strategy}-{self.place}-{self.kind}-{self.form}" if self.kind != "none" else f"{self.strategy}-none"
        )


def plans(strategy: Strategy) -> list[Plan]:
    """No prior; on channels of the 31 BatchNorm inputs; on the maps at the ends of the three stages.

    With the published number of steps, which takes three times as long, only the rows that answer a question: does more
    time close the gap?
    """
    rows = [Plan(strategy, "channels", "none", "nll")]
    if strategy == "published":
        kinds = ("diagonal", "diagonal-dct", "laplace-dct")
        return [*rows, *(Plan(strategy, "maps", kind, "typical") for kind in kinds)]
    for form in ("typical", "nll"):
        rows += [Plan(strategy, "channels", kind, form) for kind in ("diagonal", "laplace", "dense")]
        if form == "typical":
            # Two steps lead from "diagonal" to "laplace-dct", basis and correlations: each is also taken alone.
            kinds = ("diagonal", "laplace", "diagonal-dct", "laplace-dct")
            rows += [Plan(strategy, "maps", kind, form) for kind in kinds]
    return rows


@dataclass
class Known:
    """All that is remembered of the training images: statistics by place, and class Gaussians."""

    classifier: Classifier
    inputs: dict[str, LayerStatistics]
    priors: dict[tuple[Place, bool], dict[str, LayerStatistics]]
    gaussians: ClassGaussians

    def layers(self, plan: Plan) -> dict[str, LayerStatistics]:
        """The layers a prior looks at."""
        layers = self.priors[plan.place, plan.prior_kind == "laplace-dct"]
        if plan.kind == "diagonal-dct":
            return {key: uncorrelated(layer) for key, layer in layers.items()}
        return layers

    def knowledge(self, plan: Plan) -> Knowledge:
        """Of every plan the same but for the layers its prior looks at."""
        layers = self.layers(plan)
        all_layers = {**self.priors["maps", False], **self.inputs, **layers}
        return Knowledge(self.classifier.backbone, all_layers, self.classifier.head, list(layers))


def uncorrelated(layer: LayerStatistics) -> LayerStatistics:
    """The same variances in the layer's own basis, without correlations."""
    assert layer.normal is not None
    sigma = layer.normal.covariance
    plain = LaplaceCovariance(sigma.diagonal(), torch.zeros_like(sigma.weight), sigma.coord)
    return replace(layer, covariances={"laplace": Laplace(LaplaceNormal(layer.normal.loc, plain, layer.normal.basis))})


def measure(classifier: Classifier, images: Images, cache: Path) -> Known:
    """One pass over un-augmented images; covariances of channels, maps, and maps in the DCT basis."""
    files = {key: cache / "statistics" / f"{key[0]}{'-dct' if key[1] else ''}" for key in _PLACES}
    inputs_file = cache / "statistics" / "inputs"
    if not inputs_file.exists():
        backbone = classifier.backbone
        meters = {
            ("channels", False): LayerMeter(batchnorm_points(backbone), "channels", ("laplace", "dense")),  # type: ignore[arg-type]
            ("maps", False): LayerMeter(MAPS, "map", ("laplace",), transform=None),
            ("maps", True): LayerMeter(MAPS, "map", ("laplace",), transform="dct"),
        }
        inputs = LayerMeter(list(block_input_points(backbone).values()), "channels", ())
        classes = ClassMeter(feature_point(backbone), backbone.pool)
        run_meters(backbone, images.batches(), [*meters.values(), inputs, classes])  # type: ignore[arg-type]
        inputs_file.parent.mkdir(parents=True, exist_ok=True)
        for key, meter in meters.items():
            remember(files[key], meter.statistics())  # type: ignore[index]
        remember(inputs_file, inputs.statistics(), classes.gaussians())
    kept = Memory.load(inputs_file)
    assert kept.gaussians is not None
    priors = {key: dict(Memory.load(file).layers) for key, file in files.items()}
    return Known(classifier, dict(kept.layers), priors, kept.gaussians)


def remember(file: Path, layers: dict[str, LayerStatistics], gaussians: ClassGaussians | None = None) -> None:
    """Write statistics to a file."""
    memory = Memory()
    memory.layers, memory.gaussians = layers, gaussians
    memory.save(file)


def dream(known: Known, plan: Plan, weight: float, count: int, seed: int, cache: Path) -> Images:
    """Images dreamed for balanced labels, in parts of at most `PART`; parts dreamed before are read from the cache.

    One seed means the same labels, target features and noise for every prior.
    """
    sizes = [min(PART, count - done) for done in range(0, count, PART)]
    parts = [_part(known, plan, weight, size, seed, number, cache) for number, size in enumerate(sizes)]
    return Images(torch.cat([part.pixels for part in parts]), torch.cat([part.labels for part in parts]))


def _part(known: Known, plan: Plan, weight: float, size: int, seed: int, number: int, cache: Path) -> Images:
    file = cache / "dreams" / f"{plan.name}-w{weight:g}-n{size}-s{seed}-{number}.safetensors"
    if file.exists():
        kept = load_file(file)
        return Images(kept["images"].float(), kept["labels"])
    generator = torch.Generator().manual_seed(1000 * seed + number)
    targets = feature_targets(balanced_labels(range(10), size), known.gaussians, None, generator)
    prior = PriorSettings(plan.prior_kind, plan.form, weight)
    knowledge = known.knowledge(plan)
    if plan.strategy != "pyramid":
        settings = replace(LAYERWISE if plan.strategy == "layerwise" else PUBLISHED, prior=prior)
        found = invert_layerwise(knowledge, targets, generator, settings, progress=say)
    else:
        labels = Targets(targets.labels)
        found = invert_pyramid(knowledge, labels, generator, replace(PYRAMID, prior=prior), progress=say)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    save_file({"images": found.images.half(), "labels": found.labels}, unfinished)
    unfinished.rename(file)
    return Images(found.images.half().float(), found.labels)


def say(progress: Progress) -> None:
    """A line every 20 steps of the refinement."""
    step = progress.step
    if progress.number == progress.phases - 1 and (step.step + 1) % 20 == 0:
        values = ", ".join(f"{name} {value:.4g}" for name, value in step.values.items())
        print(f"  {progress.phase}, step {step.step + 1}/{step.steps}: {values}", flush=True)


def settings_of(strategy: Strategy) -> dict[str, object]:
    """The settings of a strategy, for the record."""
    return asdict({"layerwise": LAYERWISE, "published": PUBLISHED, "pyramid": PYRAMID}[strategy])
