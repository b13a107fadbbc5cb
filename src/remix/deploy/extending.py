"""Further images of classes that a model knows already, perhaps together with new classes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remix.data import ImageDataset
from remix.deploy.few_images import FewImagesDiagonal, bounded_rates
from remix.learning import Learner, Stage, TensorReplay
from remix.methods.distillation import balance_head
from remix.methods.remix import Remix
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    ClassRecord,
    LayerStatistics,
    feature_point,
    merge_layers,
    run_meters,
)

__all__ = ["ExtendDiagonal", "ExtendLaplace", "blended"]


@dataclass(frozen=True)
class ExtendDiagonal(FewImagesDiagonal):
    """Old classes are dreamed as ever; real images may be of old classes too.

    Such images have no place in a loss among the new classes, so there is one stage: cross-entropy of real images and
    pseudo-samples over all classes, balanced, and the old model's logits on the pseudo-samples.
    """

    def stages(self, learner: Learner) -> list[Stage]:
        """The head, then all that learns, on the same terms."""
        head = balance_head(learner, self.balance, 1.0, self.scales.hard)
        blocks = [block.module for block in learner.backbone.blocks()]
        network = replace(head, name="network", trained=[*head.trained, *blocks], sgd=self.network)
        return bounded_rates([head, network], learner)

    def remember(self, learner: Learner, data: ImageDataset) -> None:
        """As the method does; a class with further images is remembered as both, by numbers of images."""
        backbone, memory, replay = learner.backbone, learner.memory, learner.replay
        assert isinstance(replay, TensorReplay)
        assert memory.gaussians is not None
        now, past = (ClassMeter(feature_point(backbone), backbone.pool) for _ in range(2))
        meters = [now, *self.layer_meters(learner)]
        run_meters(learner.student.backbone, learner.images(data), meters)  # type: ignore[arg-type]
        run_meters(learner.student.backbone, replay.batches(500), [past])
        layers: dict[str, LayerStatistics] = {}
        for meter in meters[1:]:
            layers |= meter.statistics()  # type: ignore[attr-defined]
        assert learner.teacher is not None
        known, seen = learner.teacher.head.num_classes, data.counts()
        before = sum(record.images for record in memory.classes[:known])
        memory.layers = merge_layers([(before, memory.layers), (len(data), layers)])
        old = memory.gaussians.replace(self.followed(learner, past.gaussians()))
        memory.gaussians = blended(old, {label: r.images for label, r in enumerate(memory.classes)}, now.gaussians())
        memory.selectors = None  # chosen by features that have moved
        memory.classes = tuple(
            ClassRecord(record.name, record.images + (seen.get(record.name, 0) if label < known else 0))
            for label, record in enumerate(memory.classes)
        )


@dataclass(frozen=True)
class ExtendLaplace(ExtendDiagonal, Remix):
    """With the covariances of REMIX."""


def blended(old: ClassGaussians, images: dict[int, int], new: ClassGaussians) -> ClassGaussians:
    """Class Gaussians of both: a class that is in both has the moments of old and new images together.

    Args:
        old: before.
        images: how many images of each class were seen before, by label.
        new: of the images that were added; ``new.counts`` says how many.

    """
    mean, std = new.mean.clone(), new.std.clone()
    counts = list(new.counts)
    for place, label in enumerate(new.labels):
        if label not in old.labels:
            continue
        row = int(old.rows([label])[0])
        total = images[label] + new.counts[place]
        share = new.counts[place] / total
        both = (1 - share) * old.mean[row].to(mean) + share * new.mean[place]
        squares = (1 - share) * (old.std[row].square() + old.mean[row].square()).to(mean)
        squares = squares + share * (new.std[place].square() + new.mean[place].square())
        mean[place], std[place] = both, (squares - both.square()).clamp_min(0).sqrt()
        counts[place] = total
    return old.replace(ClassGaussians(new.labels, tuple(counts), mean, std))
