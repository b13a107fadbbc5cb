"""An engine in the middle of its work, as plain tensors and plain JSON; going on from there gives the same bits."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from remix.learning.engine import Engine
from remix.learning.items import TensorReplay
from remix.learning.losses import LabelCounts
from remix.learning.trainer import StageState
from remix.networks import Classifier, described_head, saved_state
from remix.networks.heads import head_class_of
from remix.networks.weights import check_numbers
from remix.statistics import Memory
from remix.support.machine import out_of_memory

__all__ = ["engine_tensors", "replay_tensors", "restore"]


def engine_tensors(engine: Engine) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that changes while an engine works, except the buffer of pseudo-samples (see `replay_tensors`).

    Call it at a safe point of `Engine.learn`, or between two tasks.

    Returns:
        tensors by name, copied by whoever writes them, and plain JSON.

    """
    tensors: dict[str, Tensor] = {"generator": engine.generator.get_state(), "counts": engine.counts.counts}
    frozen = _frozen(engine)
    own = {name: tensor for name, tensor in engine.student.state_dict().items() if name not in frozen}
    tensors |= _named("student", own)
    if engine.teacher is not None:
        tensors |= _named("teacher", saved_state(engine.teacher, engine.student))
    kept, memory = engine.memory.to_tensors()
    tensors |= _named("memory", kept)
    modules = engine.saved_modules | {name: module.state_dict() for name, module in engine.modules.items()}
    for name, state in modules.items():
        tensors |= _named(f"module/{name}", state)
    tensors |= _named("optimiser", engine.stage_state.optimiser)
    record = {
        "method": engine.method.name,
        "student": engine.student.head.describe(),
        "teacher": None if engine.teacher is None else engine.teacher.head.describe(),
        "memory": memory,
        "modules": list(modules),
        "replay": None if engine.replay is None else getattr(engine.replay, "start", 0),
        "done": engine.done,
        "epoch": engine.stage_state.epoch,
        "optimiser": len(engine.stage_state.optimiser),
    }
    if frozen:
        record["frozen"] = _checksum(frozen)
    if getattr(engine.replay, "replacement", False):
        record["replacement"] = True
    return tensors, record


def replay_tensors(engine: Engine) -> dict[str, Tensor]:
    """The buffer of pseudo-samples, which stays the same for a whole task; empty if there is none."""
    return engine.replay.tensors() if isinstance(engine.replay, TensorReplay) else {}


def restore(
    engine: Engine, tensors: Mapping[str, Tensor], record: Mapping[str, Any], replay: Mapping[str, Tensor]
) -> None:
    """Put a new engine, made with the same arguments, where another one stood.

    Args:
        engine: new, nothing learned.
        tensors: of `engine_tensors`.
        record: of `engine_tensors`.
        replay: of `replay_tensors`.

    Raises:
        ValueError: in one sentence, if they are of another network or method, or no state at all.

    """
    try:
        _restore(engine, tensors, record, replay)
    except KeyError as error:
        raise ValueError(f"the state lacks {str(error.args[0])[:60]!r}") from error
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        if out_of_memory(error):
            raise
        raise ValueError(f"the state does not fit this network: {str(error).partition(chr(10))[0][:300]}") from error


def _restore(
    engine: Engine, tensors: Mapping[str, Tensor], record: Mapping[str, Any], replay: Mapping[str, Tensor]
) -> None:
    if record["method"] != engine.method.name:
        raise ValueError(f"it is of method {str(record['method'])[:60]!r}, this engine has {engine.method.name!r}")
    device = engine.team.device
    for key in ("done", "epoch"):
        if type(record[key]) is not int or record[key] < 0:
            raise ValueError(f"{key} must be a whole number from 0 up")
    if record.get("momentum"):
        raise ValueError("an earlier version of remix saved it within a stage; begin that run anew (--overwrite)")
    frozen = _frozen(engine) if record.get("frozen") is not None else {}
    if frozen and record["frozen"] != _checksum(frozen):
        raise ValueError("it was saved without what never learns, and that is not what it was: are the weights others?")
    _load(engine.student, record["student"], _part(tensors, "student"), frozen.keys())
    engine.teacher = None
    if record["teacher"] is not None:
        engine.teacher = engine.frozen_student()
        shared = engine.teacher.state_dict().keys() - saved_state(engine.teacher, engine.student).keys()
        _load(engine.teacher, record["teacher"], _part(tensors, "teacher"), shared)
        engine.teacher.requires_grad_(False).eval()
    engine.memory = Memory.from_tensors(_part(tensors, "memory"), record["memory"]).to(device)
    counts = tensors["counts"]
    if counts.dim() != 1 or counts.dtype != torch.int64 or not bool((counts >= 1).all()):
        raise ValueError("counts must be numbers of labels, from 1 up")
    engine.counts = LabelCounts(max(len(counts), 1), device)
    engine.counts.counts.copy_(counts)
    engine.modules = {}
    engine.saved_modules = {name: _part(tensors, f"module/{name}") for name in record["modules"]}
    engine.done = record["done"]
    engine.stage_state = StageState(record["epoch"], _part(tensors, "optimiser"))
    if len(engine.stage_state.optimiser) != record.get("optimiser", 0):
        raise ValueError("the state of its optimiser is not whole")
    engine.replay = None
    if record["replay"] is not None and record["replay"] is not False:  # 0 is where it starts
        moved = {name: tensor.to(device) for name, tensor in replay.items()}
        start = range(len(engine.backbone.blocks()))[0 if record["replay"] is True else record["replay"]]
        drawn = bool(record.get("replacement"))
        restored = TensorReplay(**moved, start=start, replacement=drawn) if moved else None
        engine.replay = restored or engine.method.restore_replay(engine)
    engine.generator.set_state(tensors["generator"])


def _frozen(engine: Engine) -> dict[str, Tensor]:
    """Parameters of the student that never change: around adapters, or all. Who begins the run anew has them."""
    trainable = engine.backbone.trainable() if engine.method.trains else []
    learning = {id(parameter) for module in trainable for parameter in module.parameters()}
    return {
        f"backbone.{name}": parameter
        for name, parameter in engine.backbone.named_parameters()
        if id(parameter) not in learning
    }


def _checksum(parameters: Mapping[str, Tensor]) -> int:
    found = 0
    for name, parameter in parameters.items():
        found = zlib.crc32(parameter.detach().cpu().contiguous().numpy().tobytes(), zlib.crc32(name.encode(), found))
    return found


def _load(network: Classifier, head: Any, state: dict[str, Tensor], shared: Collection[str] = ()) -> None:
    """Give a network the head that is described, and all weights but those that are shared with another that has them.

    Earlier versions told the sizes of the head's tasks instead of describing it.
    """
    described = {**network.head.describe(), "tasks": head} if isinstance(head, list) else dict(head)
    if described.get("tasks") != []:
        dim = network.head.feature_dim
        shapes = head_class_of(described).shapes(dim, described)
        found = {key.removeprefix("head."): tuple(t.shape) for key, t in state.items() if key.startswith("head.")}
        if shapes != found:
            raise ValueError("its head is not the one that it describes")
        network.head = described_head(dim, described).to(next(network.parameters()))
    check_numbers(state)
    missing, unknown = network.load_state_dict(state, strict=False)
    wrong = [*unknown, *(name for name in missing if name not in shared)]
    if wrong:
        raise ValueError(f"its weights are not those of the network: see {wrong[0][:60]!r}")


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
