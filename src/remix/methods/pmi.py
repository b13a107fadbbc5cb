"""PMI: per-layer model inversion with contrastive feature selection."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from remix.data import ImageDataset
from remix.inversion import (
    Knowledge,
    LayerwiseSettings,
    PriorSettings,
    Targets,
    balanced_labels,
    feature_targets,
    invert_layerwise,
    random_labels,
)
from remix.learning.engine import Engine, InterruptedInversion
from remix.learning.items import TensorReplay
from remix.learning.losses import LossScales
from remix.learning.method import Method, Step
from remix.learning.stage import Stage, Training, Work
from remix.methods import named_settings
from remix.methods.distillation import balance_head, balance_head_by_formula, distil, distil_texts, projectors
from remix.methods.drifted import balance_head_on_gaussians, drifted_gaussians, shifted_gaussians
from remix.methods.extending import extending_stages, remember_extension
from remix.methods.named_settings import Setting
from remix.methods.plain import FIRST, check_prior_kind, first_task
from remix.methods.registry import method
from remix.networks import Backbone, Items, TextHead
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    LayerMeter,
    LayerStatistics,
    SelectorRecipe,
    meters_by_view,
    run_meters,
    train_selectors,
)

__all__ = ["Pmi", "merged_layers"]

# Most that one step may move a logit, for a gradient of 1. The curvature of these losses is at most about half the
# squared length of the features, and with a momentum of 0.9 rates are stable up to 3.8 over the curvature. Of 0.5 and
# 4, tried on photographs that are in no table, 4 was better.
_LOGIT_STEP = 4.0


@method("pmi")
@dataclass(frozen=True)
class Pmi(Method):
    """PMI: the old model is inverted layer by layer towards features of the old classes; training unfreezes in stages.

    Args:
        setting: the name of the settings that these began with: "paper", "code" (the defaults), "ours" or "clip"; see
            docs/methods.md. ``create_method(name, setting=...)``, presets and --set give all that belongs to a name.
        first: training of the first task.
        head: of the newest classifier alone, in later tasks.
        last_block: of the newest classifier and the last block.
        network: of the newest classifier and the whole backbone.
        balance: of all classifiers, the backbone frozen.
        classifiers: which learn together with the backbone, the "newest" or "all".
        balance_weights: of classes while the head is balanced: against how often each was "seen" so far, or by the
            formula of the paper, from the data of the "task".
        balance_distils: whether the old model's logits are kept while the head is balanced.
        together: whether BatchNorm sees real images and pseudo-samples as one batch, or one after the other.
        augment_replay: whether pseudo-samples are cropped and mirrored at random, as real images are.
        follow: how the Gaussians of old classes follow the network: measured again on its "dreams"; moved with the
            "drift" of the features of new images (then they have correlations, and all classifiers are balanced on
            draws from them instead of on pseudo-samples); moved and scaled by the "shift" of the features of dreams,
            for few images; or "kept" as they are.
        bounded: whether classifiers learn no faster than the length of features allows; for features of large networks.
        scales: weights of the losses before they follow the numbers of classes.
        samples: pseudo-samples, besides those per task.
        samples_per_task: more of them for every task learned before.
        balanced: whether all old classes have equally many, as far as possible, instead of each the same chance.
        replacement: whether they are drawn from with replacement.
        depth: number of the block whose inputs are dreamed: 0 for images, 1 for what leaves a patch embedding. Nothing
            before it may learn.
        spread: how far target features lie from the mean of their class, in its standard deviations. A class that was
            measured on a few dozen images is wider than it looks, and dreams in its middle leave too much room to the
            new classes.
        selection: whether the features of a class are chosen to differ from each other (contrastive selection).
        selectors: the networks that choose.
        measure_augmented: whether statistics are of images that are cropped and mirrored at random, as in training.
        inversion: layer by layer, then refined.

    """

    keeps: ClassVar[str] = (
        "the network, a Gaussian and a selector of every class, and statistics of the inputs of its blocks"
    )
    renamed: ClassVar[Mapping[str, str]] = {"views": "augment_replay"}
    named: ClassVar[Mapping[str, Mapping[str, Any]]] = named_settings.PMI
    setting: Setting = "code"
    first: Training = FIRST
    head: Training = Training(20, 0.1)
    last_block: Training = Training(20, 0.05, (10, 15))
    network: Training = Training(120, 0.01, (60, 90))
    balance: Training = Training(40, 0.005)
    classifiers: Literal["newest", "all"] = "newest"
    balance_weights: Literal["seen", "task"] = "seen"
    balance_distils: bool = True
    together: bool = False
    augment_replay: bool = False
    follow: Literal["dreams", "drift", "shift", "kept"] = "dreams"
    bounded: bool = False
    scales: LossScales = LossScales()
    samples: int = 3000
    samples_per_task: int = 2000
    balanced: bool = False
    replacement: bool = False
    depth: int = 0
    spread: float = 1.0
    selection: bool = True
    selectors: SelectorRecipe = SelectorRecipe()
    measure_augmented: bool = True
    inversion: LayerwiseSettings = LayerwiseSettings(prior=PriorSettings("none"))

    def __post_init__(self) -> None:
        if self.samples < 0 or self.samples_per_task < 0 or self.samples + self.samples_per_task < 1:
            raise ValueError(
                "samples and samples_per_task must not be negative, and one of them above 0, got "
                f"{self.samples} and {self.samples_per_task}"
            )
        if self.depth < 0:
            raise ValueError(f"depth must be 0, for images, or the number of a block, got {self.depth}")
        if not self.spread > 0:
            raise ValueError(f"spread must be above 0, got {self.spread}")

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """No covariances are measured, so no prior can have them; nothing learns before what is dreamed."""
        check_prior_kind(self.name, self.inversion.prior)
        self.check_depth(backbone)

    def check_depth(self, backbone: Backbone) -> None:
        """Whether all that learns comes behind what is dreamed. Raises ValueError if not."""
        blocks = backbone.blocks()
        before = {id(p) for block in blocks[: self.depth] for p in block.module.parameters()}
        learning = {id(p) for module in backbone.trainable() for p in module.parameters()}
        if self.depth >= len(blocks) or before & learning:
            raise ValueError(
                f"with depth={self.depth} the inputs of a block are dreamed before which nothing may learn: begin with "
                "a transformer and adapters (network.options.adapter=moe), or set settings.depth=0"
            )

    def entered(self, engine: Engine) -> int:
        """The block whose inputs are dreamed."""
        return max(engine.start, self.depth)

    def begin(self, engine: Engine) -> None:
        """Of statistics that may be of the whole network or of another method, keep those that are measured here."""
        meters = self.layer_meters(engine.backbone, self.entered(engine))
        found = [meter.as_measured(layer) for layer in engine.memory.layers.values() for meter in meters]
        engine.memory.layers = {layer.key: layer for layer in found if layer is not None}

    # --- dreaming ---

    def dream(self, engine: Engine) -> TensorReplay:
        """Features of the old classes, then images in which the old model sees them."""
        return self.dream_of(engine, self.targets(engine))

    def dream_of(self, engine: Engine, targets: Targets) -> TensorReplay:
        """Images in which the old model sees these features."""
        teacher = engine.teacher
        assert teacher is not None
        dream = invert_layerwise(
            self.knowledge(engine),
            targets,
            engine.generator,
            self.inversion,
            progress=engine.inversion_step,
            resume=engine.inversion,
        )
        if not dream.finished:
            raise InterruptedInversion(dream.checkpoint)
        items = Items(dream.images, self.entered(engine))
        labels = dream.labels.to(dream.images.device)
        return TensorReplay.of(items, labels, teacher, replacement=self.replacement)

    def targets(self, engine: Engine) -> Targets:
        """Every old class with the same chance, or equally often; its features from its Gaussian."""
        gaussians, selectors = engine.memory.gaussians, engine.memory.selectors if self.selection else None
        assert gaussians is not None
        old, count = range(engine.old_classes), self._count(engine.tasks)
        labels = balanced_labels(old, count) if self.balanced else random_labels(old, count, engine.generator)
        wide = gaussians if self.spread == 1 else replace(gaussians, std=self.spread * gaussians.std)
        recipe = self.selectors
        return feature_targets(labels, wide, selectors, engine.generator, score=recipe.score, pool=recipe.pool)

    def _count(self, tasks: int) -> int:
        """Pseudo-samples after so many tasks."""
        return self.samples + self.samples_per_task * tasks

    def dream_work(self, tasks: int) -> tuple[int, int]:
        """Every step of every block, together one pass through the network, and every step of the refinement."""
        count = self._count(tasks)
        return count, count * (self.inversion.block.steps + self.inversion.refine.steps)

    def knowledge(self, engine: Engine) -> Knowledge:
        """What the inversion may know: the old model and the statistics of its blocks' inputs."""
        teacher = engine.teacher
        assert teacher is not None
        return Knowledge(teacher.backbone, engine.memory.layers, teacher.head, start=self.entered(engine))

    # --- training ---

    def stages(self, step: Step) -> list[Stage]:
        """From the top down: the newest classifier, the last block, the network; then all classifiers, balanced."""
        if step == "first":
            return first_task(self.first)
        stages = [
            Stage("newest classifier", self.head, lambda engine: self._distil(engine, 0, relational=False)),
            Stage("last block", self.last_block, lambda engine: self._distil(engine, 1)),
            Stage("network", self.network, lambda engine: self._distil(engine, None)),
            Stage("balance the head", self.balance, self._balance),
        ]
        if step == "extend":
            stages = extending_stages(self.balance, self.network, self.scales.hard)
        return [_bounded(stage) for stage in stages] if self.bounded else stages

    def _distil(self, engine: Engine, blocks: int | None, relational: bool = True) -> Work:
        """The newest classifier and so many of the last blocks, or all that learns."""
        scales = self.scales.for_task(engine.new_classes, engine.old_classes)
        relational = relational and scales.relational > 0
        if isinstance(engine.student.head, TextHead):
            return Work([engine.student.head.newest(), *engine.learning()], distil_texts(engine, scales))
        losses = distil(engine, scales, relational, together=self.together, augment=self.augment_replay)
        modules = engine.learning()
        if blocks is not None:
            modules = [block.module for block in engine.backbone.blocks()[len(engine.backbone.blocks()) - blocks :]]
        pair = [projectors(engine)] if relational else []
        head = engine.student.head
        return Work([head if self.classifiers == "all" else head.newest(), *pair, *modules], losses)

    def _balance(self, engine: Engine) -> Work:
        if self.follow == "drift":
            return balance_head_on_gaussians(engine, drifted_gaussians(engine))
        scales = self.scales.for_task(engine.new_classes, engine.old_classes)
        hard = scales.hard if self.balance_distils else 0.0
        if self.balance_weights == "task":
            return balance_head_by_formula(engine, hard)
        return balance_head(engine, self.scales.local, hard)

    # --- remembering ---

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Class Gaussians (of old classes as `follow` says), selectors and what the blocks receive."""
        memory, replay = engine.memory, engine.replay
        classes = self._class_meter(engine, correlated=self.follow == "drift")
        meters = self.layer_meters(engine.backbone, self.entered(engine))
        images = engine.images(data, engine.generator if self.measure_augmented else None)
        run_meters(engine.backbone, images, [classes, *meters])
        layers = {key: layer for meter in meters for key, layer in meter.statistics().items()}
        gaussians, features = classes.gaussians(), classes.features() if self.selection else {}
        if isinstance(replay, TensorReplay) and (self.follow != "kept" or engine.step == "extend"):
            past = self._class_meter(engine)
            run_meters(engine.backbone, replay.batches(500), [past])
            followed = self._followed(engine, past.gaussians())
            if engine.step == "extend":
                remember_extension(engine, data, followed, gaussians, layers)
                return
            gaussians = followed.replace(gaussians)
            if self.selection and self.selectors.again:
                features = past.features() | features
        memory.layers = merged_layers(engine, layers)
        # A class that no pseudo-sample was drawn of keeps its old Gaussian.
        memory.gaussians = gaussians if memory.gaussians is None else memory.gaussians.replace(gaussians)
        if self.selection:
            trained = train_selectors(features, self.selectors, engine.generator)
            memory.selectors = trained if memory.selectors is None else memory.selectors.replace(trained)
        else:
            memory.selectors = None  # those that another method left are of features that have moved

    def _class_meter(self, engine: Engine, correlated: bool = False) -> ClassMeter:
        backbone = engine.backbone
        point = backbone.point(-1, "output")
        return ClassMeter(point, backbone.pool, keep_features=self.selection, correlated=correlated)

    def _followed(self, engine: Engine, dreamed: ClassGaussians) -> ClassGaussians:
        """The Gaussians of the old classes after this task; ``dreamed`` are those of their pseudo-samples now."""
        if self.follow == "drift":
            return drifted_gaussians(engine)
        return shifted_gaussians(engine, dreamed) if self.follow == "shift" else dreamed

    def layer_meters(self, backbone: Backbone, start: int) -> list[LayerMeter]:
        """What to measure besides classes: the inputs of blocks, and what else is watched that is no BatchNorm."""
        inputs = backbone.block_inputs(start)
        others = [] if backbone.has_batchnorm else [place for place in backbone.watched(start) if place not in inputs]
        return meters_by_view([*inputs, *others])


def merged_layers(engine: Engine, layers: dict[str, LayerStatistics]) -> dict[str, LayerStatistics]:
    """Statistics of the old tasks and of the new one as those of all, by numbers of classes."""
    if not engine.old_classes:
        return layers
    return dict(engine.memory.layers.merge(layers, (engine.old_classes, engine.new_classes)))


def _bounded(stage: Stage) -> Stage:
    """The same stage, in which classifiers learn no faster than the length of features allows.

    A step of a linear classifier moves a logit by the rate times the squared length of the feature. Features of large
    networks are long (some 3,000 squared for a ResNet-34): a rate that suits short ones makes the classifiers of new
    classes grow until they drown the old ones, or until numbers are not finite any more.
    """

    def start(engine: Engine) -> Work:
        work, gaussians, lr = stage.start(engine), engine.memory.gaussians, stage.training.lr
        if gaussians is None or not lr:
            return work
        energy = float((gaussians.mean.square() + gaussians.std.square()).sum(1).mean())
        return replace(work, factors=[(engine.student.head, min(1.0, _LOGIT_STEP / (energy * lr)))])

    return replace(stage, start=start)
