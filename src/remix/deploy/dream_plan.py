"""From a model and what is asked of it to a run that can begin; everything that can be refused is refused here."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from remix.data import ImageDataset
from remix.deploy.dream_options import DreamOptions, Settings, Strategy, settings_for
from remix.inversion import (
    Checkpoint,
    Dream,
    GeneratorSettings,
    Knowledge,
    LayerwiseSettings,
    PixelSettings,
    PriorKind,
    Progress,
    PyramidSettings,
    Targets,
    balanced_labels,
    feature_targets,
    invert_layerwise,
    invert_pixels,
    invert_pyramid,
    train_generator,
)
from remix.inversion.dream import chunks
from remix.inversion.priors import PRIORS
from remix.laplace import LaplaceNormal
from remix.learning import Model
from remix.networks import Transformer
from remix.networks.probe import evaluating
from remix.statistics import LayerStatistics, Memory, batchnorm_statistics, covariance_kinds
from remix.support.global_random import undisturbed

__all__ = ["DreamPlan", "make_plan"]

_MOST_CLASSES = 10  # where none are named
_MOST_DRAWS = 200  # batches of a trained generator that are looked through for the classes asked for
_LARGE = 64  # pixels
_TIMED = 8  # images, at most, by which the time is estimated


@dataclass(frozen=True, eq=False)
class DreamPlan:
    """A run that can begin.

    Attributes:
        model: on the device where it runs.
        labels: of the images, (N,); every chunk has all classes.
        settings: of the strategy.
        record: the whole request as plain JSON: two runs with equal records give the same bits.
        notes: what a person should know beforehand.

    """

    model: Model
    strategy: Strategy
    labels: Tensor
    settings: Settings
    knowledge: Knowledge
    seed: int
    record: dict[str, Any]
    notes: tuple[str, ...]

    @undisturbed()
    def run(self, progress: Callable[[Progress], None] | None = None, resume: Checkpoint | None = None) -> Dream:
        """Dream. Raises InversionStoppedError if numbers stop being finite, ValueError for a foreign checkpoint."""
        generator = torch.Generator().manual_seed(self.seed)
        settings, knowledge = self.settings, self.knowledge
        if isinstance(settings, GeneratorSettings):
            return self._generate(settings, generator, progress, resume)
        if isinstance(settings, LayerwiseSettings):
            memory = self.model.memory
            assert memory is not None
            assert memory.gaussians is not None
            targets = feature_targets(self.labels, memory.gaussians, memory.selectors, generator)
            return invert_layerwise(knowledge, targets, generator, settings, progress=progress, resume=resume)
        targets = Targets(self.labels)
        if isinstance(settings, PixelSettings):
            return invert_pixels(knowledge, targets, generator, settings, progress=progress, resume=resume)
        return invert_pyramid(knowledge, targets, generator, settings, progress=progress, resume=resume)

    def images(self, progress: Callable[[Progress], None] | None = None) -> ImageDataset:
        """Dream, to images as bytes with labels and class names. Raises KeyboardInterrupt if it was interrupted."""
        dream = self.run(progress)
        if not dream.finished:
            raise KeyboardInterrupt
        images = self.model.preprocessing.normalisation.denormalise(dream.images)
        return ImageDataset(images.cpu(), dream.labels.cpu(), self.model.classes)

    def title(self) -> str:
        """The run in one line."""
        prior = self.settings.prior
        about = f"prior {prior.kind}, {prior.form}, weight {prior.weight:g}"
        if prior.kind == "none" or not prior.weight:
            about = "no prior"
        steps = sum(steps for steps, _ in self._phases())
        return "  ·  ".join([self.model.backbone, self.strategy, about, f"{steps} steps", f"seed {self.seed}"])

    def expected_seconds(self) -> float:
        """About how long it will take here, by a few passes of the network, forward and backward."""
        settings = self.settings
        at_once = settings.batch if isinstance(settings, GeneratorSettings) else 1
        images = self.knowledge.like.new_zeros(min(_TIMED, len(self.labels)), *self.model.preprocessing.shape)
        took = []
        with evaluating(self.model.classifier), torch.enable_grad():
            for _ in range(2):
                began, x = time.perf_counter(), images.clone().requires_grad_()
                (gradient,) = torch.autograd.grad(self.model.classifier.backbone.pooled(x).sum(), x)
                gradient.sum().item()  # waits for the device
                took.append(time.perf_counter() - began)
        return sum(self._work) * at_once * min(took) / len(images)

    def done(self, progress: Progress) -> float:
        """The share of all the work that is done after a step."""
        work, step = self._work, progress.step
        return (sum(work[: progress.number]) + work[progress.number] * (step.step + 1) / step.steps) / sum(work)

    @cached_property
    def _work(self) -> list[float]:
        """What each phase costs, in forward and backward passes of the whole network for one image."""
        per_image = [steps * cost for steps, cost in self._phases()]
        if isinstance(self.settings, GeneratorSettings):
            return per_image
        parts = chunks(len(self.labels), self.settings.batch)
        return [(part.stop - part.start) * cost for part in parts for cost in per_image]

    def _phases(self) -> list[tuple[int, float]]:
        """Steps, and the cost of a step, of each phase; a block costs about its share of the network."""
        settings = self.settings
        if isinstance(settings, LayerwiseSettings):
            blocks = len(self.model.classifier.backbone.blocks())
            return [(settings.block.steps, 1 / blocks)] * blocks + [(settings.refine.steps, 1.0)]
        if isinstance(settings, PyramidSettings):
            levels = (*settings.scales, *([] if settings.polish is None else [settings.polish]))
            return [(scale.steps, 1.0) for scale in levels]
        return [(settings.schedule.steps, 1.0)]

    def _generate(
        self,
        settings: GeneratorSettings,
        generator: torch.Generator,
        progress: Callable[[Progress], None] | None,
        resume: Checkpoint | None,
    ) -> Dream:
        """Train a generator, then draw images until every class has enough of them, or enough were drawn."""
        source = train_generator(self.knowledge, generator, settings, progress=progress, resume=resume)
        wanted = {int(label): int((self.labels == label).sum()) for label in self.labels.unique()}
        images, labels = [self.knowledge.like.new_empty(0, *self.model.preprocessing.shape)], [self.labels[:0]]
        for _ in range(_MOST_DRAWS if source.finished else 1):
            if not any(wanted.values()):
                break
            drawn, found = source.sample(settings.batch, generator)
            for label, left in wanted.items():
                rows = (found == label).nonzero()[:left, 0]
                wanted[label] -= len(rows)
                images.append(drawn[rows])
                labels.append(found[rows].cpu())
        return Dream(
            torch.cat(images), torch.cat(labels), source.finished, {"generator": source.history}, source.checkpoint
        )


def make_plan(model: Model, options: DreamOptions) -> DreamPlan:
    """Choose what was left open, and check everything.

    Raises:
        ValueError: for a class, prior or strategy that this model cannot give; the message says what it can.

    """
    head = model.classifier.head
    if head.at is not None:
        raise ValueError(
            "this model has an exact head on features of its blocks, and images are dreamed from a head on its last: "
            "learn with the method remix or pmi to dream"
        )
    if not head.all_tasks:
        raise ValueError(
            f"a head of the kind {head.kind!r} chooses a task first, which an inversion cannot follow: dream with a "
            "model of another method than dcmi"
        )
    notes: list[str] = []
    wanted = options.classes or model.classes[:_MOST_CLASSES]
    if options.classes is None and len(model.classes) > _MOST_CLASSES:
        notes.append(f"the first {_MOST_CLASSES} of {len(model.classes)} classes; name others with --classes")
    places = model.labels(wanted)
    names = tuple(model.classes[place] for place in places)
    strategy = options.strategy or _usual_strategy(model)
    if strategy == "layerwise":
        _check_layerwise(model, names, places)
    fitted = [kind for kind in _prior_kinds(model.memory) if kind.startswith("laplace")]
    prior = options.prior or next(iter(fitted), "diagonal")
    layers = _prior_layers(model, prior)
    transformer = isinstance(model.classifier.backbone, Transformer)
    settings = settings_for(strategy, options, prior, model.preprocessing, _spread(model), transformer)
    labels = balanced_labels(places, options.count * len(places))
    _check_spread(options, settings, prior, layers, len(labels))
    if strategy == "generator":
        notes.append("a generator makes images of any class: those of the asked classes are kept, as the network reads")
    if not isinstance(settings, GeneratorSettings) and settings.batch < len(labels):
        sizes = {part.stop - part.start for part in chunks(len(labels), settings.batch)}
        notes.append(f"{len(labels)} images in chunks of {' and '.join(map(str, sorted(sizes)))}")
    statistics = {} if model.memory is None else dict(model.memory.layers)
    keys = [layer.key for layer in layers] or None
    knowledge = Knowledge(model.classifier.backbone, statistics, head, keys)
    record = {
        "model": _fingerprint(model),
        "classes": list(names),
        "count": options.count,
        "strategy": strategy,
        "seed": options.seed,
        "settings": json.loads(json.dumps(asdict(settings))),
    }
    return DreamPlan(model, strategy, labels, settings, knowledge, options.seed, record, tuple(notes))


def _usual_strategy(model: Model) -> Strategy:
    """Layer by layer where the model has what it takes; else from noise, larger images from coarse to fine."""
    if _lacking(model) is None:
        return "layerwise"
    return "pyramid" if model.preprocessing.size >= _LARGE else "pixels"


def _prior_kinds(memory: Memory | None) -> list[PriorKind]:
    """The priors that a memory has statistics for; without one, those of BatchNorm layers."""
    layers = [] if memory is None else list(memory.layers.values())
    known = dict.fromkeys((*PRIORS, *covariance_kinds()))
    return [kind for kind in known if kind in ("none", "diagonal") or any(_has(layer, kind) for layer in layers)]


def _has(layer: LayerStatistics, kind: str) -> bool:
    if kind == "laplace-dct":
        return isinstance(layer.normal, LaplaceNormal) and layer.normal.basis is not None
    return kind in layer.covariances


def _prior_layers(model: Model, prior: PriorKind) -> list[LayerStatistics]:
    """The layers that a prior looks at; none where the network's own BatchNorm statistics serve.

    Raises:
        ValueError: if no layer has this kind of covariance.

    """
    if prior not in _prior_kinds(model.memory):
        there = ", ".join(_prior_kinds(model.memory))
        remedy = {"laplace-dct": "--views map", "dense": "--kinds laplace,dense"}.get(prior, f"--kinds {prior}")
        raise ValueError(f"this model has no {prior!r} statistics, only: {there}. `remix measure {remedy}` makes them")
    if prior in ("none", "diagonal") or model.memory is None:
        return []
    found = [layer for layer in model.memory.layers.values() if _has(layer, prior)]
    channels = [layer for layer in found if not layer.view.per_image]
    return channels if prior != "laplace-dct" and channels else found


def _lacking(model: Model) -> str | None:
    """What layer-wise inversion would need and the model does not have."""
    memory = model.memory
    if memory is None or memory.gaussians is None:
        return "class Gaussians of its features"
    known = Knowledge(model.classifier.backbone, memory.layers).block_inputs
    blocks = model.classifier.backbone.blocks()[1:]
    return None if all(block.name in known for block in blocks) else "statistics of its blocks' inputs"


def _check_layerwise(model: Model, names: tuple[str, ...], places: list[int]) -> None:
    lacking = _lacking(model)
    if lacking is not None:
        raise ValueError(
            f"the strategy layerwise needs {lacking}, which this model does not have: measure them with "
            "`remix measure`, or use --strategy pixels or pyramid"
        )
    assert model.memory is not None
    assert model.memory.gaussians is not None
    for name, place in zip(names, places, strict=True):
        if place not in model.memory.gaussians.labels:
            raise ValueError(f"no images of {name!r} were measured: the strategy layerwise cannot dream it")


def _check_spread(
    options: DreamOptions, settings: Settings, prior: PriorKind, layers: list[LayerStatistics], count: int
) -> None:
    """The form kl compares the spread of a batch: a batch must have one."""
    if options.form != "kl" or prior == "none":
        return
    batch = settings.batch if isinstance(settings, GeneratorSettings) else count // len(chunks(count, settings.batch))
    if batch < 2:
        raise ValueError("the form kl compares the spread of a batch, so it needs at least 2 images at a time, got 1")
    for layer in layers:
        if layer.view.per_image:
            if prior == "dense":
                raise ValueError("the form kl of a dense prior needs statistics of channels, not of maps")
            continue
        rows_per_image = math.prod(layer.shape) // layer.dim
        if batch * rows_per_image <= layer.dim:
            raise ValueError(
                f"the form kl needs more than {layer.dim // rows_per_image} images at a time for '{layer.point}' with "
                f"{layer.dim} channels of {rows_per_image} positions, got {batch}: raise --count, or use typical or nll"
            )


def _spread(model: Model) -> float:
    """Of what BatchNorm layers receive, as far as they know: see `settings_for`."""
    backbone: Any = model.classifier.backbone
    layers = batchnorm_statistics(backbone).values()
    return sum(float(layer.variance.norm() + layer.variance.sqrt().norm()) for layer in layers)


def _fingerprint(model: Model) -> str:
    """Of weights, statistics and preprocessing."""
    digest = hashlib.sha256(repr((model.backbone, model.classes, model.preprocessing)).encode())
    tensors = dict(model.classifier.state_dict())
    if model.memory is not None:
        tensors |= {f"memory/{name}": tensor for name, tensor in model.memory.to_tensors()[0].items()}
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
