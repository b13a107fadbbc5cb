"""Parts that methods share: a classifier of the present task's classes alone, thrown away after it."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.learning.engine import Engine
from remix.networks import LinearHead

__all__ = ["TASK_HEAD", "task_head", "turned_labels"]

TASK_HEAD = "task head"
"""Its name among the engine's modules."""


def task_head(engine: Engine, turns: int = 1) -> LinearHead:
    """The classifier, with a bias; with several ``turns``, every rotation of a class is a class of its own.

    A single new class comes first, the old ones behind it.
    """
    classes = 1 + engine.old_classes if engine.new_classes == 1 else engine.new_classes
    dim, sizes = engine.backbone.feature_dim, [turns * classes]
    return engine.module(TASK_HEAD, lambda: LinearHead(dim, sizes, bias=True, generator=engine.generator))


def turned_labels(engine: Engine, labels: Tensor, turns: int = 1) -> Tensor:
    """Labels (turns N,) among those of the task, one rotation after the other: y + r C in rotation r of C classes."""
    local = labels - engine.old_classes
    return torch.cat([local + turn * engine.new_classes for turn in range(turns)])
