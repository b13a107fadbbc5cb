"""What a run is made of, what it will do task by task, and whether it can come to its end; before it does anything."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import torch

from remix.data import Splits, TaskStream, class_order, load
from remix.data.images import first_of_each
from remix.data.registry import list_datasets
from remix.data.task_stream import task_sizes
from remix.experiments.config import DataConfig, RunConfig
from remix.learning.history import check_class_names
from remix.learning.method import Method
from remix.learning.team import Team
from remix.networks import Backbone, Head, OpenedNetwork, backbone_options, create_head, open_network, open_text_tower
from remix.support.settings import SettingError
from remix.support.text import shown

__all__ = [
    "RunPlan", "StagePlan", "TaskPlan", "check_run",
    "create_network", "create_run_head", "create_team", "divided", "load_tasks", "method_of", "network_options",
    "plan_run",
]  # fmt: skip


def load_tasks(data: DataConfig, root: str | None) -> TaskStream:
    """The tasks that a configuration of data describes. Raises DataError, SettingError."""
    try:
        splits = load(data.name, root, **data.options)
    except TypeError as error:
        if not data.options:
            raise
        raise SettingError(f"data.options holds a value of the wrong kind: {shown(data.options)}") from error
    return divided(splits, data)


def divided(splits: Splits, data: DataConfig) -> TaskStream:
    """A data set in the tasks that a configuration describes. Raises DataError if it cannot be."""
    train, test = first_of_each(splits.train, data.images), first_of_each(splits.test, data.test_images)
    stream = TaskStream(replace(splits, train=train, test=test), data.tasks, data.order, data.first, data.classes)
    return stream.with_validation(data.validation, data.validation_seed) if data.validation else stream


def create_team(config: RunConfig) -> Team:
    """The team that a configuration asks for. With several processes the command is started once more for each other.

    Raises:
        SettingError: for a device that is not here, or too many of them.

    """
    plain = config.devices == 1 and config.precision == "32"
    if plain and (config.accelerator == "cpu" or (config.accelerator == "auto" and not _accelerated())):
        return Team()
    most = max(16, os.cpu_count() or 1)
    if config.accelerator == "cpu" and config.devices > most:
        raise SettingError(f"devices: {config.devices} processes are more than this machine can bear, at most {most}")
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    strategy = "ddp" if config.devices > 1 else "auto"
    try:
        fabric = Fabric(
            accelerator=config.accelerator, devices=config.devices, precision=config.precision, strategy=strategy
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingError(f"{config.devices} x {config.accelerator!r} cannot be used here: {reason}") from error
    if fabric.device.type == "cuda":
        torch.backends.cudnn.deterministic = True  # going on after an interruption is to give the same bits
    fabric.launch()
    return Team(fabric)


def _accelerated() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()


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
    tasks, method = _tasks(stream) if stream is not None else _official_tasks(config), method_of(config)
    plans, before = [], 0
    for number, (classes, train, test) in enumerate(tasks):
        pseudo, dream_work = method.dream_work(number) if number else (0, 0)
        before += train
        seen = before if method.keeps_images else train
        rows = 2 * seen if pseudo else seen
        stages = tuple(
            StagePlan(stage.name, stage.training.epochs, stage.training.epochs * stage.passes * rows)
            for stage in method.stages("later" if number else "first")
            if stage.training.epochs
        )
        plans.append(TaskPlan(classes, seen, test, pseudo, dream_work, stages))
    return RunPlan(tuple(plans), stream is not None)


def method_of(config: RunConfig) -> Method:
    """The method, as it is for a network that begins with weights or without."""
    trained = config.network.weights is not None or config.network.backbone.startswith("hf:")
    return config.settings.on_trained() if trained else config.settings


def check_run(config: RunConfig, stream: TaskStream | None) -> OpenedNetwork:
    """Whether method, network and data fit, every task can be learned and tested, and the result saved as a model.

    Args:
        config: the run.
        stream: its tasks; None if the data are not there, then method and network are looked at.

    Returns:
        the network that the run begins with.

    Raises:
        ValueError: (SettingError, DataError) if not.

    """
    network = _opened(config)
    backbone = network.backbone
    config.settings.check(backbone)
    head = create_run_head(config, backbone)
    if stream is None:
        return network
    if tuple(backbone.input_shape) != stream[0].train.input_shape:
        raise SettingError(
            f"network.backbone {config.network.backbone!r} takes images {tuple(backbone.input_shape)}, those of "
            f"{stream.name} are {stream[0].train.input_shape}; choose another, or set network.options.input_shape"
        )
    check_class_names(stream.classes)
    head.check_names(stream.classes)
    config.settings.check_tasks([task.classes for task in stream])
    for index in range(len(stream)):
        if not len(stream.test(index)):
            raise SettingError(
                f"task {index + 1} ({', '.join(stream[index].classes)}) has no test images in {stream.name}; give its "
                "classes some, or learn them in one task with others (data.tasks)"
            )
    prepared = stream.splits.preprocessing  # raises for images that are not square
    if config.network.backbone.startswith("hf:"):  # it was trained on images that were normalised in its own way
        prepared = replace(prepared, mean=network.preprocessing.mean, std=network.preprocessing.std)
    return replace(network, preprocessing=prepared)


def create_run_head(config: RunConfig, backbone: Backbone) -> Head:
    """The head that a run begins with, without classes. Raises SettingError, ValueError."""
    network = config.network
    kind = config.settings.head_kind(network.head)
    options: dict[str, Any] = {"bias": True} if network.bias else {}
    if network.head == "text" and kind != "linear":
        tower = (network.text.tower or network.backbone).removeprefix("hf:")
        if network.text.tower is None and not network.backbone.startswith("hf:"):
            raise SettingError("a text head needs a text tower: set network.text.tower to a transformers folder")
        try:
            adapters = open_text_tower(tower, network.text.projection).encoder.adapted
            adapted = adapters > 0 and network_options(config).get("adapter") == "moe"
            options = {"place": tower, "projection": network.text.projection, "templates": network.text.templates}
            return create_head(kind, backbone.feature_dim, adapted=adapted, **options)
        except (FileNotFoundError, ValueError) as error:
            raise SettingError(f"network.text: {error}") from error
    return create_head(kind, backbone.feature_dim, **options)


def create_network(config: RunConfig) -> Backbone:
    """The backbone with the weights it begins with.

    Raises:
        SettingError: for a bad value of an option, or weights that do not fit.

    """
    return _opened(config).backbone


def _opened(config: RunConfig) -> OpenedNetwork:
    network = config.network
    folder = network.backbone.startswith("hf:")
    try:
        return open_network(network.backbone, network_options(config), network.weights, seed=config.seed)
    except FileNotFoundError as error:
        raise SettingError(f"network.{'backbone' if folder else 'weights'}: {error}") from error
    except ValueError as error:
        raise SettingError(f"network.{'backbone' if folder else 'options'}: {error}") from error


def network_options(config: RunConfig) -> dict[str, Any]:
    """The options of the backbone, its adapter as the method has it; lists of a file are tuples here."""
    options = config.network.options
    found: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if "adapter" in backbone_options(config.network.backbone):
        found["adapter"] = config.settings.adapter_kind(found.get("adapter"))
    return {key: value for key, value in found.items() if key != "adapter" or value is not None}


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
    train, test = min(train, data.images or train), min(test, data.test_images or test)
    if data.validation:
        train, test = train * (1 - data.validation), train * data.validation
    found, start = [], 0
    for size in sizes:
        names = tuple(f"class {label}" for label in order[start : start + size])
        found.append((names, round(size * train), round(size * test)))
        start += size
    return found
