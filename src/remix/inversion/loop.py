"""The one optimisation loop behind every strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.inversion.adam import Adam
from remix.inversion.checkpoint import Checkpoint
from remix.inversion.loop_state import LoopState
from remix.inversion.objective import Objective
from remix.inversion.observed import Section
from remix.inversion.schedule import Schedule
from remix.inversion.term import Term
from remix.inversion.variables import Variable
from remix.statistics import NonFiniteActivationError, Point
from remix.support.interrupts import uninterrupted

__all__ = ["InversionStoppedError", "StepReport", "Task", "optimise"]


@dataclass(frozen=True)
class Task:
    """An optimisation: what is sought, what it should satisfy, and how long.

    Attributes:
        terms: of the objective.
        section: the part of the network that runs.
        variable: the unknowns, at their start.
        schedule: steps and learning rates.
        keep_best: whether the result is the best point seen, or the last one.
        micro_batch: most images at once; changes memory and time, not the result.
        gradient_limit: the gradient's norm over all unknowns is cut to this.
        adjust: called with the number of steps made and the new unknowns, to change them in place.

    """

    terms: Sequence[Term]
    section: Section
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
    task: Task,
    generator: torch.Generator,
    *,
    progress: Callable[[StepReport], None] | None = None,
    state: LoopState | None = None,
) -> tuple[LoopState, bool]:
    """Run the steps of a task that are left.

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
    objective = Objective(task.terms, task.section, task.variable, task.micro_batch)
    state = state or LoopState(task.variable.tensors, Adam(task.variable.tensors))
    task.variable.tensors = state.tensors
    while state.step < task.schedule.steps:
        before, made = generator.get_state(), state.step
        try:
            weigh = _Weights(objective.terms, state)
            values, gradients = objective.evaluate(generator, weigh, state.step)
            with uninterrupted():
                report = _commit(task, objective.terms, state, weigh, values, gradients)
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


class _Weights:
    """Boosted weights of one step, decided by the values of the terms."""

    def __init__(self, terms: Sequence[Term], state: LoopState) -> None:
        self._terms, self._first = terms, state.first
        self.boosts = dict(state.boosts)

    def __call__(self, values: Mapping[str, float]) -> dict[str, float]:
        for term in self._terms:
            boost = term.boost
            if boost is not None and self._first and values[term.name] > self._first[term.name]:
                self.boosts[term.name] = min(self.boosts.get(term.name, 1.0) * boost.factor, boost.cap)
        return {term.name: term.weight * self.boosts.get(term.name, 1.0) for term in self._terms}


def _commit(
    task: Task,
    terms: Sequence[Term],
    state: LoopState,
    weigh: _Weights,
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
    state.adam.step(gradients, rate)
    task.variable.commit()
    if not state.first:
        state.first.update(values)
    state.boosts = weigh.boosts
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
    state.tensors = [tensor.clone() for tensor in state.best]
    state.adam = Adam(state.tensors)
    message = (
        f"inversion stopped in step {state.step}, the best point so far is that of step {state.best_step}: {error}"
    )
    return InversionStoppedError(error.point, message, state)
