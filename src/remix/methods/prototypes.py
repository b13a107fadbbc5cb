"""Parts that methods share: old classes as the means of their features, which stay as they were measured."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.method import Step
from remix.statistics import measure_classes

__all__ = ["class_prototypes", "refuse_extending", "refuse_single_classes", "remember_prototypes"]


def class_prototypes(engine: Engine) -> Tensor:
    """The mean features of the old classes, (old classes, dim), in the order of their labels."""
    gaussians = engine.memory.gaussians
    assert gaussians is not None
    return gaussians.mean[gaussians.rows(range(engine.old_classes))]


def remember_prototypes(engine: Engine, data: ImageDataset) -> None:
    """Add those of the new classes, measured on plain images; those of old classes are never measured again.

    They are kept as class Gaussians, of which only the means are used.
    """
    found, known = measure_classes(engine.backbone, engine.images(data)), engine.memory.gaussians
    engine.memory.gaussians = found if known is None else known.replace(found)


def refuse_extending(method: str, step: Step) -> None:
    """Raise ValueError for a step with images of known classes, whose prototypes would have to move."""
    if step == "extend":
        raise ValueError(
            f"the method {method} has no place for images of known classes: extend with remix, pmi or finetune"
        )


def refuse_single_classes(method: str, tasks: Sequence[Sequence[str]]) -> None:
    """Raise ValueError if a task has one class only: there is nothing to tell it from within the task."""
    for number, classes in enumerate(tasks, start=1):
        if len(classes) < 2:
            raise ValueError(
                f"the method {method} learns the classes of a task against each other, and task {number} has only one "
                f"({', '.join(classes)}): make fewer tasks (data.tasks), or choose another method, such as pmi"
            )
