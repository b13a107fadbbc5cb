"""Parts that methods share: further images of classes that are known already, perhaps together with new classes.

Such images have no place in a loss among the new classes, so stages are of one kind: cross-entropy of real images and
pseudo-samples over all classes, balanced, and the old model's logits on the pseudo-samples.
"""

from __future__ import annotations

from dataclasses import replace

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.stage import Stage, Training, Work
from remix.methods.distillation import balance_head
from remix.statistics import ClassGaussians, ClassRecord, LayerStatistics, merge_layers

__all__ = ["blended", "extending_stages", "remember_extension"]


def extending_stages(balance: Training, network: Training, hard: float) -> list[Stage]:
    """The head, then all that learns, on the same terms; ``hard`` is the weight of the old model's logits."""

    def everything(engine: Engine) -> Work:
        work = balance_head(engine, 1.0, hard)
        return replace(work, modules=[*work.modules, *engine.learning()])

    head = Stage("balance the head", balance, lambda engine: balance_head(engine, 1.0, hard))
    return [head, Stage("network", network, everything)]


def remember_extension(
    engine: Engine,
    data: ImageDataset,
    followed: ClassGaussians,
    now: ClassGaussians,
    layers: dict[str, LayerStatistics],
) -> None:
    """A class with further images is remembered as both, by numbers of images.

    Args:
        engine: trained.
        data: the images of this step.
        followed: Gaussians of the old classes after it.
        now: of the classes of its images.
        layers: statistics of its images.

    """
    memory, known, seen = engine.memory, engine.old_classes, data.counts()
    assert memory.gaussians is not None
    before = sum(record.images for record in memory.classes[:known])
    memory.layers = merge_layers([(before, memory.layers), (len(data), layers)])
    images = {label: record.images for label, record in enumerate(memory.classes)}
    memory.gaussians = blended(memory.gaussians.replace(followed), images, now)
    memory.selectors = None  # chosen by features that have moved
    memory.classes = tuple(
        ClassRecord(record.name, record.images + (seen.get(record.name, 0) if label < known else 0))
        for label, record in enumerate(memory.classes)
    )


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
