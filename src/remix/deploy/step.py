"""One step of learning: from a network or model and new images to a model that knows their classes too."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from remix.data import DataError, ImageDataset, Preprocessing, Task
from remix.data.intake import Intake
from remix.deploy.recipe import WITHOUT_DREAMS, LearnSettings, Recipe, frozen_blocks, make_recipe
from remix.learning import (
    BestEpoch,
    FrozenTrunk,
    LearnStep,
    Model,
    Monitor,
    Team,
    TensorReplay,
    check_class_names,
    check_step_name,
)
from remix.learning import Learner as Engine
from remix.methods.pmi import Pmi
from remix.networks import Backbone, Classifier
from remix.networks.cut import cut
from remix.networks.probe import evaluating
from remix.statistics import LayerMeter, LayerStatistics, Memory, batchnorm_points

__all__ = ["Outcome", "Start", "learn_step", "new_engine"]

_TESTED_DREAMS = 0.2  # of the pseudo-samples are not trained on but tested on
_ENOUGH_DREAMS = 20
_FROM_ELSEWHERE = {"weights", "adopted"}  # what the provenance of a network says that was trained before its first step


@dataclass(frozen=True, eq=False)
class Start:
    """A network before its first step, or a model.

    Attributes:
        backbone: the network; it is copied, never changed.
        name: that it is registered under.
        options: of ``create_backbone(name, **options)``.
        preprocessing: of images.
        trained: whether it has weights of earlier training.
        model: the model, if there is one.
        provenance: what to note about where it comes from.

    """

    backbone: Backbone
    name: str
    options: Mapping[str, Any]
    preprocessing: Preprocessing
    trained: bool = False
    model: Model | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> Start:
        """Going on with a model."""
        return cls(
            model.classifier.backbone, model.backbone, model.options, model.preprocessing,
            trained=not _FROM_ELSEWHERE.isdisjoint(model.provenance), model=model, provenance=model.provenance,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a step gave.

    Attributes:
        model: the new one; the old one is unchanged.
        step: what its history says of it.
        notes: what a person should know.

    """

    model: Model
    step: LearnStep
    notes: tuple[str, ...]


def learn_step(
    start: Start,
    data: Intake,
    method: str,
    settings: LearnSettings,
    *,
    extend: bool = False,
    name: str = "",
    team: Team | None = None,
    monitor: Monitor | None = None,
) -> Outcome:
    """Learn the classes of the data.

    Args:
        start: a network or model.
        data: images of the new classes, and with ``extend`` of known ones.
        method: one of `remix.deploy.recipe.METHODS`.
        settings: what was asked for.
        extend: whether images of known classes are to be added to these.
        name: of the step, for the history.
        team: device and precision.
        monitor: told of everything that happens.

    Raises:
        DataError: for a class that is known already, or a single class to begin with.
        ValueError: for settings that do not fit, or a model without the statistics that the method needs.

    """
    check_step_name(name)
    before = start.model.classes if start.model else ()
    extended = tuple(one for one in data.classes if one in before)
    _check_names(extended, before, data.classes, extend)
    new = tuple(one for one in data.classes if one not in before)
    check_class_names((*before, *new))
    backbone: Any = copy.deepcopy(start.backbone)
    frozen = start.model.frozen if start.model else 0
    notes = []
    if start.model is None:
        frozen = frozen_blocks(settings.freeze, backbone, start.trained, len(data.train))
    elif settings.freeze is not None or settings.size is not None:
        raise ValueError("freeze and size are chosen in the first step; this model keeps what it has")
    recipe = make_recipe(
        method,
        settings,
        trained=start.trained,
        frozen=frozen,
        channels=start.preprocessing.channels,
        size=start.preprocessing.size,
        images=len(data.train),
        old_classes=len(before),
        laplace=start.model is None or _has_covariances(start.model, frozen),
        extend=bool(extended),
    )
    if start.model is not None:
        _check_statistics(start.model, recipe)
    engine = new_engine(start, backbone, frozen, recipe, settings.seed, team, monitor)
    names = (*before, *new)
    train, held = (_renamed(part, names) for part in (data.train, data.held))
    watch = _Watch(engine, held)
    if len(held):
        engine.best = BestEpoch(watch.judge, recipe.patience)
    else:
        notes.append("nothing is held out: every epoch is trained, and there is no test")
    task = Task(engine.tasks, train, held, range(len(before), len(names)), new, tuple(range(len(new))))
    engine.learn(task, watch.safe_point)
    accuracies = watch.accuracies(len(before))
    counts = train.counts()
    step = LearnStep(
        data.classes, tuple(counts[one] for one in data.classes), method, accuracies, extended=extended, name=name
    )
    history = (*(start.model.history if start.model else ()), step)
    classifier = Classifier(backbone, engine.student.head).cpu().requires_grad_(True).eval()
    model = Model(
        classifier, start.name, dict(start.options), names, start.preprocessing,
        engine.memory.to("cpu"), start.provenance, history, frozen,
    )  # fmt: skip
    return Outcome(model, step, tuple(notes))


def new_engine(
    start: Start,
    backbone: Backbone,
    frozen: int,
    recipe: Recipe,
    seed: int = 0,
    team: Team | None = None,
    monitor: Monitor | None = None,
) -> Engine:
    """An engine at the start; it works on ``backbone`` itself, and on copies of the model's head and memory."""
    trunk, top = None, backbone
    if frozen:
        lower, top = cut(backbone, frozen)
        trunk = FrozenTrunk(lower, recipe.views)
    engine = Engine(
        top,
        recipe.method,
        start.preprocessing.normalisation,
        recipe.augment,
        batch_size=recipe.batch,
        bias=start.model.classifier.head.bias if start.model else False,
        seed=seed,
        team=team,
        monitor=monitor,
        trunk=trunk,
        adapt_batchnorm=recipe.adapt_batchnorm,
    )
    if start.model is not None:
        engine.student.head = copy.deepcopy(start.model.classifier.head).to(engine.team.device)
        memory = (start.model.memory or Memory()).to(engine.team.device)
        if isinstance(recipe.method, Pmi):
            memory.layers = _fitting_layers(memory.layers, recipe.method.layer_meters(engine))
        engine.memory = memory
    recipe.method.check(top)
    return engine


def _fitting_layers(layers: Mapping[str, LayerStatistics], meters: Sequence[LayerMeter]) -> dict[str, LayerStatistics]:
    """Of statistics that may be of the whole network or of another method, those that are measured now."""
    found = [meter.as_measured(layer) for layer in layers.values() for meter in meters]
    return {layer.key: layer for layer in found if layer is not None}


class _Watch:
    """Judges a learner on images and pseudo-samples that it is not trained on."""

    def __init__(self, engine: Engine, held: ImageDataset) -> None:
        self.engine, self.held = engine, held
        self.dreams: TensorReplay | None = None
        self.taken = False

    def safe_point(self) -> None:
        """After dreaming, take a part of the dreams for testing."""
        replay = self.engine.replay
        if self.taken or not isinstance(replay, TensorReplay):
            return
        self.taken = True
        count = int(_TESTED_DREAMS * len(replay))
        if count >= _ENOUGH_DREAMS:
            self.dreams = TensorReplay(*(part[:count] for part in _parts(replay)))
            self.engine.replay = TensorReplay(*(part[count:] for part in _parts(replay)))
        else:
            self.dreams = replay

    def judge(self) -> float:
        """Cross-entropy over all classes: of held-out images and of dreams, by the numbers of classes they are of."""
        new = self._mean_loss(self.engine.images(self.held))
        if self.dreams is None:
            return new
        old_classes, held_classes = self.dreams.logits.shape[1], len(self.held.labels.unique())
        old = self._mean_loss(self.dreams.batches(100))
        return (old * old_classes + new * held_classes) / (old_classes + held_classes)

    def _mean_loss(self, batches: Any) -> float:
        total, count = 0.0, 0
        with evaluating(self.engine.student):
            for images, labels in batches:
                logits = self.engine.student(images)
                total += float(nn.functional.cross_entropy(logits, labels, reduction="sum"))
                count += len(labels)
        return total / count

    def accuracies(self, old_classes: int) -> dict[str, float]:
        """In percent, by what was tested."""
        found = {}
        if len(self.held):
            right, count = self.engine.evaluate(self.held)
            found["new classes, held-out images" if old_classes else "held-out images"] = 100 * right / count
        return found


def _parts(replay: TensorReplay) -> tuple[Tensor, Tensor, Tensor]:
    return replay.images, replay.labels, replay.logits


def _renamed(data: ImageDataset, names: tuple[str, ...]) -> ImageDataset:
    """The same images with labels that are places in ``names``."""
    place = {name: label for label, name in enumerate(names)}
    places = torch.tensor([place[one] for one in data.classes])
    return replace(data, labels=places[data.labels], classes=names)


def _check_names(extended: tuple[str, ...], before: tuple[str, ...], given: tuple[str, ...], extend: bool) -> None:
    if extended and not extend:
        listed = ", ".join(extended[:5]) + (", ..." if len(extended) > 5 else "")
        raise DataError(
            f"the model knows {listed} already: extend (--extend) adds these images to what it knows, "
            "or give the class another name"
        )
    if len(before) + len(given) < 2:
        raise DataError(f"there is only one class, {given[0]}: a classifier needs at least two to begin with")


def _has_covariances(model: Model, frozen: int) -> bool:
    """Whether there is one of the channels of every BatchNorm input that still learns."""
    backbone: Any = model.classifier.backbone
    top: Any = cut(backbone, frozen)[1] if frozen else backbone
    layers = model.memory.layers.values() if model.memory else ()
    known = {layer.point for layer in layers if layer.view.name == "channels" and layer.normal is not None}
    return {*batchnorm_points(top)} <= known


def _check_statistics(model: Model, recipe: Recipe) -> None:
    recorded = tuple(record.name for record in model.memory.classes) if model.memory else ()
    if recorded != model.classes:
        raise ValueError(
            "the model has no record of all its classes (statistics were removed, or measured of a part of them), so "
            "it can be used but not taught: measure them (remix measure), or adopt the network with some of its data"
        )
    if recipe.method.name in WITHOUT_DREAMS:
        return
    known = set(model.memory.gaussians.labels if model.memory and model.memory.gaussians else ())
    missing = [name for label, name in enumerate(model.classes) if label not in known]
    if missing:
        raise ValueError(
            f"the model keeps no statistics of {missing[0]}, so its old classes cannot be dreamed: learn them with the "
            "method remix, measure them (remix measure), or adopt the network with some of its data"
        )
