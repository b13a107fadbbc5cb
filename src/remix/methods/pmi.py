"""PMI: per-layer model inversion with contrastive feature selection."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from remix.data import ImageDataset
from remix.inversion import (
    Knowledge,
    LayerwiseSettings,
    PriorSettings,
    Targets,
    feature_targets,
    invert_layerwise,
    random_labels,
)
from remix.learning.learner import InterruptedInversion, Learner
from remix.learning.method import Method
from remix.learning.replay import TensorReplay
from remix.learning.scaling import LossScales
from remix.learning.sgd import Sgd
from remix.learning.stage import Stage
from remix.methods.distillation import balance_head, distil, projectors
from remix.methods.drifted import balance_head_on_gaussians, drifted_gaussians
from remix.methods.plain import FIRST, first_task
from remix.methods.priors import check_batchnorm, check_prior_kind
from remix.methods.registry import method
from remix.networks import Backbone
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    LayerMeter,
    LayerStatistics,
    SelectorRecipe,
    Selectors,
    block_input_points,
    feature_point,
    merge_layers,
    run_meters,
    train_selectors,
)

__all__ = ["Pmi"]


@method("pmi")
@dataclass(frozen=True)
class Pmi(Method):
    """PMI: the old model is inverted layer by layer towards features of the old classes; training unfreezes in stages.

    Args:
        first: training of the first task.
        head: of the newest classifier alone, in later tasks.
        last_block: of the newest classifier and the last block.
        network: of the newest classifier and the whole backbone.
        balance: of all classifiers, the backbone frozen.
        together: whether BatchNorm sees real images and pseudo-samples as one batch; published is one after the other.
        views: whether pseudo-samples are cropped and mirrored at random, as real images are.
        follow: how the Gaussians of old classes follow the network: measured again on its "dreams", as published, or
            moved with the "drift" of the features of new images; then they have correlations, and all classifiers are
            balanced on draws from them instead of on pseudo-samples.
        scales: weights of the losses before they follow the numbers of classes.
        samples: pseudo-samples, besides those per task.
        samples_per_task: more of them for every task learned before.
        selection: whether the features of a class are chosen to differ from each other (contrastive selection).
        selectors: training of the networks that choose.
        inversion: layer by layer, then refined.

    """

    first: Sgd = FIRST
    head: Sgd = Sgd(20, 0.1)
    last_block: Sgd = Sgd(20, 0.05, (10, 15))
    network: Sgd = Sgd(120, 0.01, (60, 90))
    balance: Sgd = Sgd(40, 0.005)
    together: bool = False
    views: bool = False
    follow: Literal["dreams", "drift"] = "dreams"
    scales: LossScales = LossScales()
    samples: int = 3000
    samples_per_task: int = 2000
    selection: bool = True
    selectors: SelectorRecipe = SelectorRecipe()
    inversion: LayerwiseSettings = LayerwiseSettings(prior=PriorSettings("none"))

    def __post_init__(self) -> None:
        if self.samples < 0 or self.samples_per_task < 0 or self.samples + self.samples_per_task < 1:
            raise ValueError(
                "samples and samples_per_task must not be negative, and one of them above 0, got "
                f"{self.samples} and {self.samples_per_task}"
            )

    def check(self, backbone: Backbone) -> None:
        """No covariances are measured, so no prior can have them; images are held to what BatchNorm layers saw."""
        check_prior_kind(self.name, self.inversion.prior)
        check_batchnorm(self.name, backbone)

    # --- dreaming ---

    def dream(self, learner: Learner) -> TensorReplay:
        """Features of the old classes, then images in which the old model sees them."""
        teacher = learner.teacher
        assert teacher is not None
        dream = invert_layerwise(
            self.knowledge(learner),
            self.targets(learner),
            learner.generator,
            self.inversion,
            progress=learner.inversion_step,
            resume=learner.inversion,
        )
        if not dream.finished:
            raise InterruptedInversion(dream.checkpoint)
        return TensorReplay.of(dream.images, dream.labels.to(dream.images.device), teacher)

    def targets(self, learner: Learner) -> Targets:
        """Every old class with the same chance, its features from its Gaussian."""
        memory = learner.memory
        assert memory.gaussians is not None
        labels = random_labels(range(learner.old_classes), self.count(learner), learner.generator)
        return feature_targets(
            labels, memory.gaussians, memory.selectors if self.selection else None, learner.generator
        )

    def count(self, learner: Learner) -> int:
        """How many pseudo-samples there are in this task."""
        return self.samples + self.samples_per_task * learner.tasks

    def dream_work(self, learner: Learner) -> tuple[int, int]:
        """Every step of every block, together one pass through the network, and every step of the refinement."""
        count = self.count(learner)
        return count, count * (self.inversion.block.steps + self.inversion.refine.steps)

    def knowledge(self, learner: Learner) -> Knowledge:
        """What the inversion may know: the old model and the statistics of its blocks' inputs."""
        assert learner.teacher is not None
        return Knowledge(learner.teacher.backbone, learner.memory.layers, learner.teacher.head)

    # --- training ---

    def stages(self, learner: Learner) -> list[Stage]:
        """From the top down: the newest classifier, the last block, the network; then all classifiers, balanced."""
        if learner.teacher is None:
            return first_task(learner, self.first)
        scales = self.scales.for_task(learner.new_classes, learner.old_classes)
        newest, pair, backbone = learner.student.head.classifier(-1), projectors(learner), learner.backbone
        how = {"together": self.together, "views": self.views}
        all_terms = distil(learner, scales, **how)
        if self.follow == "drift":
            balance = balance_head_on_gaussians(learner, self.balance)
        else:
            balance = balance_head(learner, self.balance, self.scales.local, scales.hard)
        return [
            Stage("newest classifier", [newest], self.head, distil(learner, scales, relational=False, **how)),
            Stage("last block", [newest, pair, backbone.blocks()[-1].module], self.last_block, all_terms),
            Stage("network", [newest, pair, *(block.module for block in backbone.blocks())], self.network, all_terms),
            balance,
        ]

    # --- remembering ---

    def remember(self, learner: Learner, data: ImageDataset) -> None:
        """Class Gaussians (of old classes as `follow` says), selectors and what the blocks receive."""
        backbone, memory = learner.backbone, learner.memory
        drifting = self.follow == "drift"
        classes = ClassMeter(feature_point(backbone), backbone.pool, keep_features=self.selection, correlated=drifting)
        meters = [classes, *self.layer_meters(learner)]
        run_meters(learner.student.backbone, learner.images(data), meters)  # type: ignore[arg-type]
        layers = {key: layer for meter in meters[1:] for key, layer in meter.statistics().items()}  # type: ignore[attr-defined]
        memory.layers = merged(learner, layers)
        gaussians, features = classes.gaussians(), classes.features() if self.selection else {}
        if isinstance(learner.replay, TensorReplay):
            past = ClassMeter(feature_point(backbone), backbone.pool, keep_features=self.selection)
            run_meters(learner.student.backbone, learner.replay.batches(500), [past])
            gaussians = self.followed(learner, past.gaussians()).replace(gaussians)
            features = past.features() | features if self.selection else {}
        memory.gaussians = _updated_gaussians(memory.gaussians, gaussians)
        if self.selection:
            memory.selectors = _updated_selectors(memory.selectors, features, self.selectors, learner)

    def followed(self, learner: Learner, dreamed: ClassGaussians) -> ClassGaussians:
        """The Gaussians of the old classes after this task; ``dreamed`` are those of their pseudo-samples now."""
        return drifted_gaussians(learner) if self.follow == "drift" else dreamed

    def layer_meters(self, learner: Learner) -> list[LayerMeter]:
        """What to measure besides classes."""
        return [LayerMeter(list(block_input_points(learner.backbone).values()), kinds=())]


def merged(learner: Learner, layers: dict[str, LayerStatistics]) -> dict[str, LayerStatistics]:
    """Statistics of the old tasks and of the new one as those of all, by numbers of classes."""
    old = learner.old_classes
    return merge_layers([(old, learner.memory.layers), (learner.new_classes, layers)]) if old else layers


def _updated_gaussians(before: ClassGaussians | None, now: ClassGaussians) -> ClassGaussians:
    """A class that no pseudo-sample was drawn of keeps its old Gaussian."""
    return now if before is None else before.replace(now)


def _updated_selectors(
    before: Selectors | None, features: dict[int, Tensor], recipe: SelectorRecipe, learner: Learner
) -> Selectors:
    now = train_selectors(features, recipe, learner.generator)
    return now if before is None else before.replace(now)
