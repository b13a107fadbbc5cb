"""Optimisations one after another, each starting from what the last one found; stoppable and resumable anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from remix.inversion.loop import (
    Checkpoint,
    InversionStoppedError,
    LoopState,
    Optimisation,
    StepReport,
    optimise,
)
from remix.support.machine import out_of_memory

__all__ = ["Phase", "Progress", "Reached", "run_phases"]


@dataclass(frozen=True)
class Phase:
    """A step of a strategy.

    Attributes:
        name: different from that of every other phase.
        build: from the result of the phase before (None for the first) to the optimisation. It may draw from the
            generator.
        keep: whether its result is part of what the strategy gives, rather than only a step on the way.
        usable: whether its unfinished result can stand in for that when the run is interrupted.
        fresh: whether it starts without the result of the phase before, as the first phase of every chunk does.

    """

    name: str
    build: Callable[[Tensor | None, torch.Generator], Optimisation]
    keep: bool = False
    usable: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class Progress:
    """A step of a strategy: which phase of how many, and the step itself.

    ``glance()`` is where it stands, without copies, to be measured or written before the next step changes it.
    ``restart()`` makes a smaller checkpoint, of the beginning of the present phase: what was found to be kept, and for
    a phase that is not ``fresh`` the result of the one before.
    """

    phase: str
    number: int
    phases: int
    step: StepReport
    fresh: bool
    glance: Callable[[], Checkpoint] = field(repr=False)
    restart: Callable[[], Checkpoint] = field(repr=False)


@dataclass(frozen=True)
class Reached:
    """How far a strategy came.

    Attributes:
        results: of the phases that are to be kept, as far as they were reached; the last may be unfinished.
        finished: whether all phases were run to their end.
        history: by phase, then by term, the values in every step.
        checkpoint: where to go on, if it is not finished.

    """

    results: list[Tensor]
    finished: bool
    history: dict[str, dict[str, list[float]]]
    checkpoint: Checkpoint | None


def run_phases(
    phases: Sequence[Phase],
    generator: torch.Generator,
    *,
    progress: Callable[[Progress], None] | None = None,
    resume: Checkpoint | None = None,
) -> Reached:
    """Run phases one after another.

    Raises:
        ValueError: if the checkpoint is of other phases.
        InversionStoppedError: see `optimise`.

    """
    run = _Run(phases, generator, progress)
    if resume is not None:
        with _of_this_run():
            run.resume(resume)
    return run.finish()


class _Run:
    def __init__(
        self, phases: Sequence[Phase], generator: torch.Generator, progress: Callable[[Progress], None] | None
    ) -> None:
        self.phases, self.generator, self.progress = phases, generator, progress
        self.number = 0
        self.previous: Tensor | None = None
        self.kept: list[Tensor] = []
        self.history: dict[str, dict[str, list[float]]] = {}
        self.saved: tuple[Checkpoint, torch.Tensor] | None = None
        self.before = generator.get_state()  # of the generator, before the present phase was built

    def resume(self, checkpoint: Checkpoint) -> None:
        record, tensors = checkpoint.record, checkpoint.tensors
        names = [phase.name for phase in self.phases]
        if list(record["phases"]) != names:
            raise ValueError(
                f"the checkpoint is of another run: its phases are {_short(record['phases'])}, here they are "
                f"{_short(names)}"
            )
        number = record["number"]
        if number not in range(len(names)) or record["kept"] != sum(phase.keep for phase in self.phases[:number]):
            raise ValueError("the checkpoint is of another run: its phase is none, or has other results before it")
        self.number = number
        self.previous = tensors.get("previous")
        self.kept = [tensors[f"kept.{i}"] for i in range(record["kept"])]
        self.history = {phase: dict(terms) for phase, terms in record["history"].items()}
        if record["loop"] is None:
            self.generator.set_state(tensors["generator"])
        else:
            self.saved, self.before = (checkpoint, tensors["generator"]), tensors["before"]

    def finish(self) -> Reached:
        while True:
            phase = self.phases[self.number]
            if self.saved is None:
                self.before = self.generator.get_state()
            task = phase.build(self.previous, self.generator)
            with _of_this_run():
                state = self._restored(task)
            try:
                state, finished = optimise(task, self.generator, progress=self._report(phase, task, state), state=state)
            except InversionStoppedError as error:
                error.results = self.kept
                error.checkpoint = None if error.state is None else self._checkpoint(phase, task, error.state)
                raise
            self.history[phase.name] = state.history
            result = (state.best if task.keep_best and state.best is not None else state.tensors)[0]
            if not finished:
                results = [*self.kept, result] if phase.usable and state.step else self.kept
                return Reached(results, False, self.history, self._checkpoint(phase, task, state))
            if phase.keep:
                self.kept.append(result)
            if self.number + 1 == len(self.phases):
                return Reached(self.kept, True, self.history, None)
            self.previous = result
            self.number += 1

    def _restored(self, task: Optimisation) -> LoopState:
        if self.saved is None:
            return LoopState(task.variable.tensors)
        checkpoint, generator_state = self.saved
        self.saved = None
        task.variable.resize(checkpoint.record["loop"]["step"])
        state = LoopState.restore(task.variable.tensors, checkpoint.tensors, checkpoint.record["loop"])
        prefix = "extra."
        extras = {name[len(prefix) :]: t for name, t in checkpoint.tensors.items() if name.startswith(prefix)}
        task.variable.restore(extras)
        self.generator.set_state(generator_state)
        return state

    def _report(self, phase: Phase, task: Optimisation, state: LoopState) -> Callable[[StepReport], None] | None:
        progress, number = self.progress, self.number
        if progress is None:
            return None
        return lambda step: progress(
            Progress(
                phase.name,
                number,
                len(self.phases),
                step,
                phase.fresh,
                lambda: self._glance(phase, task, state),
                lambda: self._with_results(phase, {"generator": self.before}, None),
            )
        )

    def _checkpoint(self, phase: Phase, task: Optimisation, state: LoopState) -> Checkpoint:
        present = self._glance(phase, task, state)
        return Checkpoint({name: tensor.clone() for name, tensor in present.tensors.items()}, present.record)

    def _glance(self, phase: Phase, task: Optimisation, state: LoopState) -> Checkpoint:
        tensors = state.to_tensors()
        tensors |= {f"extra.{name}": tensor for name, tensor in task.variable.extras().items()}
        tensors |= {"generator": self.generator.get_state(), "before": self.before}
        return self._with_results(phase, tensors, state.to_record())

    def _with_results(self, phase: Phase, tensors: dict[str, Tensor], loop: dict[str, Any] | None) -> Checkpoint:
        tensors |= {f"kept.{i}": tensor for i, tensor in enumerate(self.kept)}
        if self.previous is not None and not phase.fresh:
            twice = any(self.previous is tensor for tensor in self.kept)  # files hold no tensor twice
            tensors["previous"] = self.previous.clone() if twice else self.previous
        record = {
            "phases": [phase.name for phase in self.phases],
            "number": self.number,
            "kept": len(self.kept),
            "loop": loop,
            "history": {name: terms for name, terms in self.history.items() if name != phase.name},
        }
        return Checkpoint(tensors, record)


@contextmanager
def _of_this_run() -> Iterator[None]:
    """What a checkpoint of wrong content may raise, as one sentence."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"the checkpoint is of another run: it lacks {error}") from error
    except (RuntimeError, TypeError, AttributeError, IndexError, OverflowError) as error:
        if out_of_memory(error):
            raise
        raise ValueError(f"the checkpoint is of another run: {str(error).partition(chr(10))[0][:300]}") from error


def _short(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{len(names)} ({shown}{', ...' if len(names) > 4 else ''})"
