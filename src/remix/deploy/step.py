"""One step of learning: from a network or model and new images to a model that knows their classes too."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.data import DataError, ImageDataset, Preprocessing, Task
from remix.data.intake import Intake
from remix.deploy.advice import check_similar_names, near_chance, untrained
from remix.deploy.recipe import LearnSettings, Recipe, auto_method, frozen_blocks, make_recipe
from remix.deploy.recognition import calibrated
from remix.inversion import LayerwiseSettings
from remix.learning import (
    BestEpoch,
    Engine,
    LearnStep,
    Model,
    Monitor,
    Team,
    TensorReplay,
    check_class_names,
    check_step_name,
)
from remix.learning.mistakes import most_mistaken
from remix.methods import method_class
from remix.methods.step_features import stage_ends
from remix.networks import Classifier, ExactHead, Items, OpenedNetwork, create_head
from remix.statistics import Calibration, ClassSums, Memory, covariance_kinds

__all__ = ["exact_step", "learn_step", "new_engine", "opened", "renamed"]

_TESTED_DREAMS = 0.2  # of the pseudo-samples are not trained on but tested on
_ENOUGH_DREAMS = 20
_HELD = "held-out images"


def opened(model: Model) -> OpenedNetwork:
    """The network of a model."""
    classifier = model.classifier
    return OpenedNetwork(
        classifier.backbone, model.backbone, model.options, model.preprocessing, classifier.head, model.provenance
    )


def learn_step(
    network: OpenedNetwork,
    model: Model | None,
    data: Intake,
    method: str,
    settings: LearnSettings,
    *,
    extend: bool = False,
    name: str = "",
    head: str = "linear",
    team: Team | None = None,
    monitor: Monitor | None = None,
) -> Model:
    """Learn the classes of the data.

    Args:
        network: that learns; it is copied, never changed.
        model: that it is of, or None in the first step.
        data: images of the new classes, and with ``extend`` of known ones.
        method: one of `remix.deploy.recipe.step_methods`.
        settings: what was asked for.
        extend: whether images of known classes are to be added to these.
        name: of the step, for the history.
        head: kind of head in the first step.
        team: device and precision.
        monitor: told of everything that happens.

    Returns:
        the new model, whose history ends with this step.

    Raises:
        DataError: for a class that is known already, or called nearly as one is, or a single class to begin with.
        ValueError: for settings that do not fit, or a model without the statistics that the method needs.

    """
    check_step_name(name)
    before = model.classes if model else ()
    extended = tuple(one for one in data.classes if one in before)
    _check_names(extended, before, data.classes, extend)
    new = tuple(one for one in data.classes if one not in before)
    names = (*before, *new)
    check_class_names(names)
    if not settings.similar_names:
        check_similar_names(before, new)
    if model is not None and (settings.freeze is not None or settings.size is not None):
        raise ValueError("freeze and size are chosen in the first step; this model keeps what it has")
    if method == "auto":
        learns = model is None and not network.trained
        method, why = auto_method(settings, head, len(data.train), stage_ends(network.backbone).dim if learns else None)
    else:
        why = ""
    frozen = _frozen(network, model, method, settings, len(data.train))
    preprocessing = network.preprocessing
    prior = settings.prior or _usual_prior(model)
    recipe = make_recipe(
        method,
        replace(settings, prior=prior),
        trained=network.trained or (model is not None and method_class(method).exact),
        frozen=frozen,
        channels=preprocessing.channels,
        size=preprocessing.size,
        images=len(data.train),
        old_classes=len(before),
        covariances=model is None or _has_covariances(model, prior),
    )
    if extended:
        recipe.method.stages("extend")  # raises if it cannot
    if model is not None:
        recipe.method.head_kind(model.classifier.head.kind)  # raises for a head that it cannot learn with
        _check_statistics(model, recipe)
    backbone = copy.deepcopy(network.backbone)
    top = copy.deepcopy(model.classifier.head) if model else create_head(head, backbone.feature_dim)
    memory = model.memory if model else None
    engine = new_engine(Classifier(backbone, top), preprocessing, recipe, frozen, memory, settings.seed, team, monitor)
    train, held = (renamed(part, names) for part in (data.train, data.held))
    watch, notes = _Watch(engine, held), [*untrained(network, data), why] if model is None else []
    if len(held):
        engine.best = None if recipe.method.solves else BestEpoch(watch.judge, recipe.patience)
    elif not exact_step(network, model, method):
        notes.append("nothing is held out: every epoch is trained, and there is no test")
    task = Task(engine.tasks, train, held, range(len(before), len(names)), new, tuple(range(len(new))))
    engine.learn(task, watch.safe_point)
    counts = train.counts()
    images = tuple(counts[one] for one in data.classes)
    if not exact_step(network, model, method):  # which was tested with images left out
        watch.calibrate()
    accuracies = watch.accuracies(len(before))
    for what, accuracy in accuracies.items():
        tested = held if what.endswith(_HELD) else train
        notes += near_chance(accuracy, len(tested), len(data.classes))
    told = tuple(note for note in (*notes, *engine.notes) if note)
    sums = engine.memory.get(ClassSums.name) if recipe.method.exact else None
    method = sums.method if sums else method
    step = LearnStep(data.classes, images, method, accuracies, extended=extended, name=name, notes=told)
    frozen = len(backbone.blocks()) if recipe.method.exact else frozen
    return Model(
        engine.student.cpu().requires_grad_(True).eval(), network.name, dict(network.options), names, preprocessing,
        engine.memory.to("cpu"), network.provenance, (*(model.history if model else ()), step), frozen,
    )  # fmt: skip


def exact_step(network: OpenedNetwork, model: Model | None, method: str) -> bool:
    """Whether an exact head is all that a step learns, of a network that has been trained or a model of that method."""
    return method_class(method).exact and (network.trained or model is not None)


def _frozen(network: OpenedNetwork, model: Model | None, method: str, settings: LearnSettings, images: int) -> int:
    """How many blocks a step leaves as they are."""
    if settings.freeze is None and exact_step(network, model, method):
        return len(network.backbone.blocks())
    if model is not None:
        return model.frozen
    return frozen_blocks(settings.freeze, network.backbone, network.trained, images)


def new_engine(
    student: Classifier,
    preprocessing: Preprocessing,
    recipe: Recipe,
    frozen: int,
    memory: Memory | None = None,
    seed: int = 0,
    team: Team | None = None,
    monitor: Monitor | None = None,
) -> Engine:
    """An engine for a step."""
    return Engine(
        student, recipe.method, preprocessing.normalisation, recipe.augment, batch_size=recipe.batch, seed=seed,
        team=team, monitor=monitor, memory=memory, start=frozen, versions=recipe.versions,
        adapt_batchnorm=recipe.adapt_batchnorm,
    )  # fmt: skip


class _Watch:
    """Judges an engine on images and pseudo-samples that it is not trained on."""

    def __init__(self, engine: Engine, held: ImageDataset) -> None:
        self.engine, self.held = engine, held
        self.dreams: TensorReplay | None = None

    def safe_point(self) -> None:
        """After dreaming, take a part of the dreams for testing."""
        replay = self.engine.replay
        if self.dreams is not None or not isinstance(replay, TensorReplay):
            return
        count = int(_TESTED_DREAMS * len(replay))
        self.dreams = replay
        if count >= _ENOUGH_DREAMS:
            self.dreams, self.engine.replay = replay[:count], replay[count:]

    def judge(self) -> float:
        """Cross-entropy over all classes: of held-out images and of dreams, by the numbers of classes they are of."""
        new = self._mean_loss(self.engine.images(self.held))
        if self.dreams is None:
            return new
        old_classes, held_classes = self.dreams.logits.shape[1], len(self.held.labels.unique())
        old = self._mean_loss(self.dreams.batches(100))
        return (old * old_classes + new * held_classes) / (old_classes + held_classes)

    def _mean_loss(self, batches: Iterable[tuple[Items, Tensor]]) -> float:
        total, count = 0.0, 0
        for logits, labels in self.engine.logits(batches):
            total += float(cross_entropy(logits, labels, reduction="sum"))
            count += len(labels)
        return total / count

    def calibrate(self) -> None:
        """Keep how sure the model may be, by held-out images; without any, what was known is of another network."""
        engine = self.engine
        if not len(self.held):
            engine.memory.drop(Calibration.name)
            return
        pooled, logits, labels = (
            torch.cat(parts) for parts in zip(*engine.answers(engine.images(self.held)), strict=True)
        )
        engine.memory.keep(calibrated(engine.student, engine.memory, pooled, logits, labels))
        engine.notes += most_mistaken(logits, labels, self.held.classes)

    def accuracies(self, old_classes: int) -> dict[str, float]:
        """In percent, by what was tested."""
        found = dict(self.engine.estimates)
        if len(self.held):
            right, count = self.engine.evaluate(self.held)
            found[_HELD] = 100 * right / count
        return {f"new classes, {what}" if old_classes else what: value for what, value in found.items()}


def renamed(data: ImageDataset, names: tuple[str, ...]) -> ImageDataset:
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


def _usual_prior(model: Model | None) -> str:
    """The Laplace covariances that a model has, which a run may have fitted as published; else ours."""
    kinds = [kind for kind in covariance_kinds() if kind.startswith("laplace")]
    return next((kind for kind in kinds if model is not None and _has_covariances(model, kind)), "laplace")


def _has_covariances(model: Model, kind: str) -> bool:
    """Whether there is a covariance of this kind wherever statistics are taken of what still learns."""
    layers = model.memory.layers if model.memory else {}
    known = {key for key, layer in layers.items() if kind in layer.covariances}
    return {f"{point}:{view.name}" for point, view in model.classifier.backbone.watched(model.frozen)} <= known


def _check_statistics(model: Model, recipe: Recipe) -> None:
    own = model.history[-1].method if model.history else "its own"
    if isinstance(model.classifier.head, ExactHead) and not recipe.method.exact and own != recipe.method.name:
        raise ValueError(
            f"the model has an exact head, which the method {recipe.method.name} cannot train: go on with {own}, or "
            "learn all classes anew"
        )
    recorded = tuple(record.name for record in model.memory.classes) if model.memory else ()
    if recorded != model.classes:
        raise ValueError(
            "the model has no record of all its classes (statistics were removed, or measured of a part of them), so "
            "it can be used but not taught: measure them (remix measure), or adopt the network with some of its data"
        )
    if not recipe.method.dream_work(1)[0]:
        return
    known = set(model.memory.gaussians.labels if model.memory and model.memory.gaussians else ())
    missing = [name for label, name in enumerate(model.classes) if label not in known]
    if missing:
        raise ValueError(
            f"the model keeps no statistics of {missing[0]}, so its old classes cannot be dreamed: learn them with the "
            "method remix, measure them (remix measure), or adopt the network with some of its data"
        )
    if isinstance(getattr(recipe.method, "inversion", None), LayerwiseSettings):
        inputs = {f"{point}:{view.name}" for point, view in model.classifier.backbone.block_inputs(model.frozen)}
        if not inputs <= set(model.memory.layers if model.memory else ()):
            raise ValueError(
                f"an earlier version measured the model, without what enters its blocks, so the method "
                f"{recipe.method.name} cannot dream its old classes: go on with --method lwf, or learn all classes anew"
            )
