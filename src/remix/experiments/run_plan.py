"""What a run will do, task by task, before it does anything."""

from __future__ import annotations

from dataclasses import dataclass

from remix.data import Normalisation, TaskStream, class_order
from remix.data.registry import list_datasets
from remix.data.task_stream import task_sizes
from remix.experiments.config import RunConfig
from remix.experiments.run_network import create_network
from remix.learning.learner import Learner
from remix.learning.method import Method
from remix.learning.stage import Stage

__all__ = ["RunPlan", "StagePlan", "TaskPlan", "plan_run"]


@dataclass(frozen=True)
class StagePlan:
    """A stage: its name, its epochs, and images sent through the network (forward and backward) in all of them."""

    name: str
    epochs: int
    work: int


@dataclass(frozen=True)
class TaskPlan:
    """A task: its classes, numbers of images, pseudo-samples with the images sent through the network, and stages."""

    classes: tuple[str, ...]
    train: int
    test: int
    pseudo: int
    dream_work: int
    stages: tuple[StagePlan, ...]

    @property
    def work(self) -> int:
        """Images sent through the network."""
        return self.dream_work + sum(stage.work for stage in self.stages)


@dataclass(frozen=True)
class RunPlan:
    """Every task of a run; ``known`` says whether it is of the data themselves or of their official numbers."""

    tasks: tuple[TaskPlan, ...]
    known: bool

    @property
    def work(self) -> int:
        """Images sent through the network in the whole run."""
        return sum(task.work for task in self.tasks)


def plan_run(config: RunConfig, stream: TaskStream | None) -> RunPlan:
    """What a run will do.

    Args:
        config: the run.
        stream: its tasks, or None where the data are not there: then of the official numbers of images.

    Raises:
        ValueError: if neither the data nor their numbers are known, or the tasks cannot be made.

    """
    tasks = _tasks(stream) if stream is not None else _official_tasks(config)
    learner = Learner(create_network(config), config.settings, Normalisation((0.0,), (1.0,)), None)
    plans = []
    for number, (classes, train, test) in enumerate(tasks):
        learner.teacher = learner.student if number else None  # whether there is one matters, not which
        pseudo, dream_work = config.settings.dream_work(learner) if number else (0, 0)
        learner.student.head.grow(len(classes), generator=learner.generator)
        seen = sum(images for _, images, _ in tasks[: number + 1]) if config.settings.joint else train
        rows = 2 * seen if pseudo else seen
        stages = tuple(
            StagePlan(stage.name, stage.sgd.epochs, stage.sgd.epochs * rows)
            for stage in _stages(config.settings, learner)
            if stage.sgd.epochs
        )
        plans.append(TaskPlan(classes, seen, test, pseudo, dream_work, stages))
        learner.memory.record_task([(f"{number}/{name}", 1) for name in classes])
        learner.modules = {}
    return RunPlan(tuple(plans), stream is not None)


def _stages(method: Method, learner: Learner) -> list[Stage]:
    try:
        return method.stages(learner)
    except (AttributeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"method {method.name!r} cannot say its stages before it has learned anything ({error}): stages(learner) "
            "is also called for the plan, when learner.memory is empty and learner.replay None; look at them in the "
            "objective instead"
        ) from error


def _tasks(stream: TaskStream) -> list[tuple[tuple[str, ...], int, int]]:
    return [(task.classes, len(task.train), len(task.test)) for task in stream]


def _official_tasks(config: RunConfig) -> list[tuple[tuple[str, ...], int, int]]:
    data = config.data
    entry = next((entry for entry in list_datasets() if entry.name == data.name), None)
    if entry is None or entry.counts is None or entry.classes is None:
        raise ValueError(f"{data.name!r} is not here and its numbers are not known; name its folder: --data DIR")
    count = entry.classes
    order = class_order(data.order, count)[: data.classes]
    sizes = task_sizes(len(order), data.tasks, data.first)
    train, test = (total / count for total in entry.counts)
    if data.validation:
        train, test = train * (1 - data.validation), train * data.validation
    found, start = [], 0
    for size in sizes:
        names = tuple(f"class {label}" for label in order[start : start + size])
        found.append((names, round(size * train), round(size * test)))
        start += size
    return found
