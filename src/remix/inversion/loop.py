"""The one optimisation loop behind every strategy, and its state: plain tensors and plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from remix.inversion.settings import Schedule
from remix.inversion.terms import Term
from remix.inversion.total_loss import TotalLoss
from remix.inversion.variables import Variable
from remix.networks.hooks import Point
from remix.statistics import NonFiniteActivationError, read_file, write_file
from remix.support.interrupts import uninterrupted

__all__ = ["Checkpoint", "InversionStoppedError", "LoopState", "Optimisation", "StepReport", "optimise"]

_FUSED = ("cpu", "cuda")  # where torch makes Adam's step in one pass over memory, four times as fast
_KIND, _VERSION = "inversion", 1  # of a checkpoint's file


@dataclass(frozen=True)
class Optimisation:
    """What is sought, what it should satisfy, and how long.

    Attributes:
        terms: of the objective.
        network: that the terms look into.
        forward: the part of it that runs.
        variable: the unknowns, at their start.
        schedule: steps and learning rates.
        keep_best: whether the result is the best point seen, or the last one.
        micro_batch: most images at once; changes memory and time, not the result.
        gradient_limit: the gradient's norm over all unknowns is cut to this.
        adjust: called with the number of steps made and the new unknowns, to change them in place.

    """

    terms: Sequence[Term]
    network: nn.Module
    forward: Callable[[Tensor], Tensor]
    variable: Variable
    schedule: Schedule
    keep_best: bool = True
    micro_batch: int | None = None
    gradient_limit: float | None = None
    adjust: Callable[[int, Tensor], None] | None = None


@dataclass(frozen=True)
class StepReport:
    """What happened in a step: its number from 0, of how many, learning rate, objective and terms (unweighted)."""

    step: int
    steps: int
    rate: float
    loss: float
    values: Mapping[str, float]


@dataclass
class LoopState:
    """The state of `optimise` between two steps, and of its optimiser: Adam with torch's default settings.

    Attributes:
        step: steps made.
        tensors: the unknowns.
        best: the unknowns where the objective was least, or None before the first step. They are those tensors at which
            ``best_loss`` was measured, never a step later.
        best_loss: with the weights as given, not boosted.
        best_step: the step in which it was measured.
        boosts: by term, the factor on its weight.
        first: by term, its value in step 0.
        history: by term, its value in every step; "loss" is their sum with the weights as given.

    """

    tensors: list[Tensor]
    step: int = 0
    best: list[Tensor] | None = None
    best_loss: float = math.inf
    best_step: int = -1
    boosts: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fused = all(tensor.device.type in _FUSED for tensor in self.tensors)
        self._adam = torch.optim.Adam(self.tensors, fused=fused)
        self._set_adam(0, *([torch.zeros_like(tensor) for tensor in self.tensors] for _ in range(2)))

    def _set_adam(self, steps: int, first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
        """Steps made, and the running means of the gradients and of their squares."""
        for tensor, m, v in zip(self.tensors, first, second, strict=True):
            count = torch.tensor(float(steps), device=tensor.device)
            self._adam.state[tensor] = {"step": count, "exp_avg": m, "exp_avg_sq": v}

    def move(self, gradients: Sequence[Tensor], rate: float) -> None:
        """Change the unknowns."""
        for tensor, gradient in zip(self.tensors, gradients, strict=True):
            # Fused optimisers go through memory in order, and networks laid out by pixels give gradients laid out so.
            tensor.grad = gradient.contiguous() if tensor.is_contiguous() else gradient
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self._adam.zero_grad()

    def keep_as_best(self, loss: float) -> None:
        """Remember the unknowns as they are now, with the loss they have."""
        if self.best is None:
            self.best = [tensor.clone() for tensor in self.tensors]
        else:
            for kept, tensor in zip(self.best, self.tensors, strict=True):
                kept.copy_(tensor)
        self.best_loss, self.best_step = loss, self.step

    def begin_with(self, tensors: list[Tensor]) -> None:
        """Go on with other unknowns, and a new optimiser."""
        self.tensors, self.best, self.best_loss = tensors, None, math.inf
        self.__post_init__()

    def to_tensors(self) -> dict[str, Tensor]:
        """The tensors by name, themselves: they change with the next step."""
        averages = [self._adam.state[tensor] for tensor in self.tensors]
        groups = {"variable": self.tensors}
        groups |= {"first": [kept["exp_avg"] for kept in averages], "second": [kept["exp_avg_sq"] for kept in averages]}
        if self.best is not None:
            groups["best"] = self.best
        return {f"{name}.{i}": t for name, group in groups.items() for i, t in enumerate(group)}

    def to_record(self) -> dict[str, Any]:
        """The numbers, as plain JSON."""
        return {
            "step": self.step,
            "adam_steps": int(self._adam.state[self.tensors[0]]["step"]),
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
        best = group("best") if "best.0" in tensors else None
        loss = math.inf if record["best_loss"] is None else float(record["best_loss"])
        history = {name: list(values) for name, values in record["history"].items()}
        boosts, first = dict(record["boosts"]), dict(record["first"])
        state = cls(current, record["step"], best, loss, record["best_step"], boosts, first, history)
        state._set_adam(record["adam_steps"], group("first"), group("second"))
        return state


@dataclass(frozen=True)
class Checkpoint:
    """Where a strategy stands, as plain tensors and plain JSON."""

    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file."""
        write_file(path, _KIND, _VERSION, self.tensors, dict(self.record))

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read it back. Raises FileNotFoundError or DamagedFileError."""
        return cls(*read_file(path, _KIND, _VERSION))


class InversionStoppedError(NonFiniteActivationError):
    """Numbers stopped being finite.

    Attributes:
        point: where.
        state: the last good state of the optimisation, or None if there was none.
        results: what earlier phases of a strategy found that was to be kept (finished chunks of images).
        checkpoint: of a strategy, to go on from the last good state; None if there was none.

    """

    def __init__(self, point: Point, message: str, state: LoopState | None) -> None:
        super().__init__(point, message)
        self.state = state
        self.results: list[Tensor] = []
        self.checkpoint: Checkpoint | None = None


def optimise(
    task: Optimisation,
    generator: torch.Generator,
    *,
    progress: Callable[[StepReport], None] | None = None,
    state: LoopState | None = None,
) -> tuple[LoopState, bool]:
    """Run the steps that are left.

    Args:
        task: what to do.
        generator: source of everything random.
        progress: called after every step.
        state: where to go on; by default at the start.

    Returns:
        the state, and whether all steps were made: Ctrl-C (KeyboardInterrupt) ends the loop between two steps, and the
        state and the generator are such that going on gives the same bits as if nothing had happened.

    Raises:
        InversionStoppedError: if activations or terms are not finite any more.

    """
    total = TotalLoss(task.terms, task.network, task.forward, task.variable, task.micro_batch)
    state = state or LoopState(task.variable.tensors)
    task.variable.tensors = state.tensors
    while state.step < task.schedule.steps:
        before, made = generator.get_state(), state.step
        try:
            boosts = dict(state.boosts)
            values, gradients = total.evaluate(generator, _weights(total.terms, state.first, boosts), state.step)
            with uninterrupted():
                report = _commit(task, total.terms, state, boosts, values, gradients)
                if state.step < task.schedule.steps and task.variable.resize(state.step):
                    state.begin_with(task.variable.tensors)
            if progress is not None:
                progress(report)
        except KeyboardInterrupt:
            if state.step == made:
                generator.set_state(before)
            return state, False
        except NonFiniteActivationError as error:
            generator.set_state(before)
            raise _stopped(error, state) from error
    return state, True


def _weights(
    terms: Sequence[Term], first: Mapping[str, float], boosts: dict[str, float]
) -> Callable[[Mapping[str, float]], dict[str, float]]:
    """The weights of one step, decided by the values of its terms; ``boosts`` grow with them."""

    def weigh(values: Mapping[str, float]) -> dict[str, float]:
        for term in terms:
            boost = term.boost
            if boost is not None and first and values[term.name] > first[term.name]:
                boosts[term.name] = min(boosts.get(term.name, 1.0) * boost.factor, boost.cap)
        return {term.name: term.weight * boosts.get(term.name, 1.0) for term in terms}

    return weigh


def _commit(
    task: Optimisation,
    terms: Sequence[Term],
    state: LoopState,
    boosts: dict[str, float],
    values: dict[str, float],
    gradients: list[Tensor],
) -> StepReport:
    """Make a step: best so far, optimiser, history."""
    loss = sum(term.weight * values[term.name] for term in terms)
    rate = task.schedule(state.step)
    if task.keep_best and loss < state.best_loss:
        state.keep_as_best(loss)
    if task.gradient_limit is not None:
        _limit(gradients, task.gradient_limit)
    state.move(gradients, rate)
    task.variable.commit()
    if not state.first:
        state.first.update(values)
    state.boosts = boosts
    for name, value in (*values.items(), ("loss", loss)):
        state.history.setdefault(name, []).append(value)
    report = StepReport(state.step, task.schedule.steps, rate, loss, values)
    state.step += 1
    if task.adjust is not None:
        for tensor in state.tensors:
            task.adjust(state.step, tensor)
    return report


def _limit(gradients: list[Tensor], limit: float) -> None:
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
    if norm > limit:
        for gradient in gradients:
            gradient.mul_(limit / norm)


def _stopped(error: NonFiniteActivationError, state: LoopState) -> InversionStoppedError:
    """Go back to the best point if one is kept; the optimiser's averages are not to be trusted any more."""
    if state.best is None:
        kept = state if state.step else None
        return InversionStoppedError(error.point, f"inversion stopped in step {state.step}: {error}", kept)
    message = (
        f"inversion stopped in step {state.step}, the best point so far is that of step {state.best_step}: {error}"
    )
    best = replace(state, tensors=[tensor.clone() for tensor in state.best])
    return InversionStoppedError(error.point, message, best)
