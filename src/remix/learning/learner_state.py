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
from remix.networks.weights import check_numbers
from remix.statistics import Memory
from remix.support.machine import out_of_memory

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
        ValueError: in one sentence, if they are of another network or method, or no state at all.

    """
    try:
        _restore(learner, tensors, record, replay)
    except KeyError as error:
        raise ValueError(f"the state lacks {str(error.args[0])[:60]!r}") from error
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        if out_of_memory(error):
            raise
        raise ValueError(f"the state does not fit this network: {str(error).partition(chr(10))[0][:300]}") from error


def _restore(
    learner: Learner, tensors: Mapping[str, Tensor], record: Mapping[str, Any], replay: Mapping[str, Tensor]
) -> None:
    if record["method"] != learner.method.name:
        raise ValueError(f"it is of method {str(record['method'])[:60]!r}, this learner has {learner.method.name!r}")
    device = learner.team.device
    for key in ("done", "epoch", "momentum"):
        if type(record[key]) is not int or record[key] < 0:
            raise ValueError(f"{key} must be a whole number from 0 up")
    student = _part(tensors, "student")
    for size in _sizes(record["student"], student)[len(learner.student.head.task_sizes) :]:
        learner.student.head.grow(size, generator=torch.Generator())
    _load(learner.student, student)
    learner.teacher = None
    if record["teacher"] is not None:
        teacher = _part(tensors, "teacher")
        learner.teacher = _copy_of_student(learner, _sizes(record["teacher"], teacher))
        _load(learner.teacher, teacher)
    learner.memory = Memory.from_tensors(_part(tensors, "memory"), record["memory"]).to(device)
    counts = tensors["counts"]
    if counts.dim() != 1 or counts.dtype != torch.int64 or not bool((counts >= 1).all()):
        raise ValueError("counts must be numbers of labels, from 1 up")
    learner.counts = LabelCounts(max(len(counts), 1), device)
    learner.counts.counts.copy_(counts)
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


def _sizes(told: Any, state: Mapping[str, Tensor]) -> list[int]:
    """The classes of each task, if the weights are of so many."""
    if told != [len(state[f"head.classifiers.{i}.weight"]) for i in range(len(told))]:
        raise ValueError("its classifiers are not those it lists")
    return list(told)


def _load(network: Classifier, state: dict[str, Tensor]) -> None:
    check_numbers(state)
    network.load_state_dict(state)


def _copy_of_student(learner: Learner, sizes: list[int]) -> Classifier:
    """The frozen model before: the student's backbone, with fewer classifiers."""
    student = learner.student
    head = GrowingHead(student.head.feature_dim, sizes, bias=student.head.bias, generator=torch.Generator())
    backbone: nn.Module = copy.deepcopy(student.backbone)
    network = Classifier(backbone, head).to(learner.team.device)  # type: ignore[arg-type]
    return network.requires_grad_(False).eval()


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
