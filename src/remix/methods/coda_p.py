"""CODA-P: prompts put together for every image."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from remix.learning.stage import Training
from remix.methods.adapter_training import LocalAdapters
from remix.methods.registry import method

__all__ = ["CodaP"]

_MOST_TASKS = 10


@method("coda-p")
@dataclass(frozen=True)
class CodaP(LocalAdapters):
    """Prompts of a pool, put together for every image, of which a part learns with each task (CODA-Prompt).

    Settings as in `LocalAdapters`; a batch of 128 is published with them, and a linear head.
    """

    plug_ins: ClassVar[tuple[str, ...]] = ("coda",)
    training: Training = Training(20, 1e-3, weight_decay=0.0, optimiser="adam", schedule="cosine")

    def check_tasks(self, tasks: Sequence[Sequence[str]]) -> None:
        """The pool has room for them."""
        if len(tasks) > _MOST_TASKS:
            raise ValueError(
                f"the pool of coda-p has room for {_MOST_TASKS} tasks, and there are {len(tasks)}: make them fewer "
                "(data.tasks)"
            )
