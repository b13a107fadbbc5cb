"""A learner in the middle of its work, as plain tensors and plain JSON; going on from there gives the same bits."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from remix.learning.class_balance import LabelCounts
from remix.learning.learner import Learner
from remix.learning.replay import TensorReplay
from remix.learning.trainer import StageState
from remix.networks import Classifier, GrowingHead
from remix.statistics import Memory

__all__ = ["learner_tensors", "replay_tensors", "restore"]


def learner_tensors(learner: Learner) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that changes while a learner works, except the buffer of pseudo-samples (see `replay_tensors`).

    Call it at a safe point of `Learner.learn`, or between two tasks.

    Returns:
        tensors by name, copied by whoever writes them, and plain JSON.

    """
    tensors: dict[str, Tensor] = {"generator": learner.generator.get_state(), "counts": learner.counts.counts}
    tensors |= _named("student", learner.student.state_dict())
    if learner.teacher is not None:
        tensors |= _named("teacher", learner.teacher.state_dict())
    kept, memory = learner.memory.to_tensors()
    tensors |= _named("memory", kept)
    modules = learner.saved_modules | {name: module.state_dict() for name, module in learner.modules.items()}
    for name, state in modules.items():
        tensors |= _named(f"module/{name}", state)
    tensors |= {f"momentum/{i}": momentum for i, momentum in enumerate(learner.stage_state.momentum)}
    record = {
        "method": learner.method.name,
        "student": list(learner.student.head.task_sizes),
        "teacher": None if learner.teacher is None else list(learner.teacher.head.task_sizes),
        "memory": memory,
        "modules": list(modules),
        "replay": learner.replay is not None,
        "done": learner.done,
        "epoch": learner.stage_state.epoch,
        "momentum": len(learner.stage_state.momentum),
    }
    return tensors, record


def replay_tensors(learner: Learner) -> dict[str, Tensor]:
    """The buffer of pseudo-samples, which stays the same for a whole task; empty if there is none."""
    return learner.replay.tensors() if isinstance(learner.replay, TensorReplay) else {}


def restore(
    learner: Learner, tensors: Mapping[str, Tensor], record: Mapping[str, Any], replay: Mapping[str, Tensor]
) -> None:
    """Put a new learner, made with the same arguments, where another one stood.

    Args:
        learner: new, nothing learned.
        tensors: of `learner_tensors`.
        record: of `learner_tensors`.
        replay: of `replay_tensors`.

    Raises:
        ValueError: if they are of another network or method.

    """
    if record["method"] != learner.method.name:
        raise ValueError(f"the state is of method {record['method']!r}, this learner has {learner.method.name!r}")
    device = learner.team.device
    try:
        _load(learner.student, record["student"], _part(tensors, "student"))
        learner.teacher = None
        if record["teacher"] is not None:
            learner.teacher = _copy_of_student(learner, record["teacher"])
            learner.teacher.load_state_dict(_part(tensors, "teacher"))
        learner.memory = Memory.from_tensors(_part(tensors, "memory"), record["memory"]).to(device)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"the state does not fit this network: {str(error).splitlines()[0]}") from error
    learner.counts = LabelCounts(max(len(tensors["counts"]), 1), device)
    learner.counts.counts.copy_(tensors["counts"])
    learner.modules = {}
    learner.saved_modules = {name: _part(tensors, f"module/{name}") for name in record["modules"]}
    learner.done = record["done"]
    momentum = [tensors[f"momentum/{i}"].to(device) for i in range(record["momentum"])]
    learner.stage_state = StageState(record["epoch"], momentum)
    learner.replay = None
    if record["replay"]:
        moved = {name: tensor.to(device) for name, tensor in replay.items()}
        learner.replay = TensorReplay(**moved) if moved else learner.method.restore_replay(learner)
    learner.generator.set_state(tensors["generator"])


def _load(network: Classifier, sizes: list[int], state: dict[str, Tensor]) -> None:
    for size in sizes[len(network.head.task_sizes) :]:
        network.head.grow(size, generator=torch.Generator())
    network.load_state_dict(state)


def _copy_of_student(learner: Learner, sizes: list[int]) -> Classifier:
    """The frozen model before: the student's backbone, with fewer classifiers."""
    student = learner.student
    head = GrowingHead(student.head.feature_dim, sizes, bias=student.head.bias, generator=torch.Generator())
    backbone: nn.Module = copy.deepcopy(student.backbone)  # type: ignore[assignment]
    network = Classifier(backbone, head).to(learner.team.device)  # type: ignore[arg-type]
    return network.requires_grad_(False).eval()


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
