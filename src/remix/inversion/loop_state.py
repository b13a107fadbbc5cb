"""Where an optimisation stands: plain tensors and plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from remix.inversion.adam import Adam

__all__ = ["LoopState"]


@dataclass
class LoopState:
    """The state of `optimise` between two steps.

    Attributes:
        step: steps made.
        tensors: the unknowns.
        adam: the optimiser's averages.
        best: the unknowns where the objective was least, or None before the first step. They are those tensors at which
            ``best_loss`` was measured, never a step later.
        best_loss: with the weights as given, not boosted.
        best_step: the step in which it was measured.
        boosts: by term, the factor on its weight.
        first: by term, its value in step 0.
        history: by term, its value in every step; "loss" is their sum with the weights as given.

    """

    tensors: list[Tensor]
    adam: Adam
    step: int = 0
    best: list[Tensor] | None = None
    best_loss: float = math.inf
    best_step: int = -1
    boosts: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)

    def keep_as_best(self, loss: float) -> None:
        """Remember the unknowns as they are now, with the loss they have."""
        if self.best is None:
            self.best = [tensor.clone() for tensor in self.tensors]
        else:
            for kept, tensor in zip(self.best, self.tensors, strict=True):
                kept.copy_(tensor)
        self.best_loss, self.best_step = loss, self.step

    def to_tensors(self) -> dict[str, Tensor]:
        """The tensors by name, themselves: they change with the next step."""
        groups = {"variable": self.tensors, "first": self.adam.first, "second": self.adam.second}
        if self.best is not None:
            groups["best"] = self.best
        return {f"{name}.{i}": t for name, group in groups.items() for i, t in enumerate(group)}

    def to_record(self) -> dict[str, Any]:
        """The numbers, as plain JSON."""
        return {
            "step": self.step,
            "adam_steps": self.adam.steps,
            "best_loss": None if math.isinf(self.best_loss) else self.best_loss,
            "best_step": self.best_step,
            "boosts": self.boosts,
            "first": self.first,
            "history": {name: list(values) for name, values in self.history.items()},
        }

    @classmethod
    def restore(cls, like: list[Tensor], tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> LoopState:
        """The state that `to_tensors` and `to_record` describe, on the device of the tensors it belongs to.

        Raises:
            ValueError: if the tensors have other shapes.

        """

        def group(name: str) -> list[Tensor]:
            found = [tensors.get(f"{name}.{i}") for i in range(len(like))]
            for i, (one, other) in enumerate(zip(found, like, strict=True)):
                if one is None or one.shape != other.shape:
                    shape = None if one is None else tuple(one.shape)
                    raise ValueError(
                        f"the checkpoint is of another run: its {name}.{i} is {shape}, expected {tuple(other.shape)}"
                    )
            return [one.to(other, copy=True) for one, other in zip(found, like, strict=True) if one is not None]

        for key in ("step", "adam_steps"):
            if type(record[key]) is not int or record[key] < 0:
                raise ValueError(f"the checkpoint is of another run: {key} must be a whole number from 0 up")
        current = group("variable")
        adam = Adam(current)
        adam.set(record["adam_steps"], group("first"), group("second"))
        best = group("best") if "best.0" in tensors else None
        loss = math.inf if record["best_loss"] is None else float(record["best_loss"])
        return cls(
            current,
            adam,
            record["step"],
            best,
            loss,
            record["best_step"],
            dict(record["boosts"]),
            dict(record["first"]),
            {name: list(values) for name, values in record["history"].items()},
        )
