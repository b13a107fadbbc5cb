"""Saving a run so that it can go on after anything, and reading it back."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from remix.experiments.plan import RunPlan
from remix.inversion import Checkpoint, Progress
from remix.learning.engine import Engine
from remix.learning.engine_state import engine_tensors, replay_tensors, restore
from remix.learning.metrics import AccuracyMatrix
from remix.statistics import DamagedFileError, read_file, write_file
from remix.support.text import printable

__all__ = ["RunState", "Saving", "check_place"]

_STATE, _REPLAY, _VERSION = "run state", "replay", 2  # kinds of files; of version 1, states between stages are read
# What reading a sound file of wrong content may raise.
_WRONG = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True)
class Saving:
    """How often a run is saved.

    Attributes:
        epochs: at the end of an epoch, if so many seconds have passed since the last time.
        phase: at the end of a phase that took so many seconds.
        inversion: in an inversion, if so many seconds have passed since the last time.
        largest: an unfinished inversion of more bytes than this is saved only where a new chunk of images begins.

    """

    epochs: float = 30.0
    phase: float = 10.0
    inversion: float = 60.0
    largest: int = 150 * 2**20


class RunState:
    """The files of a run under ``checkpoints/``, each replaced as a whole.

    ``state.safetensors`` is where the engine stands. ``replay.safetensors`` are its pseudo-samples, which stay the
    same for a task and are written once. ``inversion-T.safetensors`` is an unfinished inversion of task T.

    Args:
        folder: where.
        saving: how often.

    """

    def __init__(self, folder: Path, saving: Saving) -> None:
        self.folder, self.saving = folder, saving
        self._replay_of: int | None = None
        self._saved = time.monotonic()
        self._too_large: set[str] = set()  # phases of the present inversion

    # --- the engine ---

    def due(self, phase_seconds: float | None) -> bool:
        """Whether to save now: at the end of a phase that took so long, or (None) at the end of an epoch."""
        if phase_seconds is not None and phase_seconds >= self.saving.phase:
            return True
        return phase_seconds is None and time.monotonic() - self._saved >= self.saving.epochs

    def save(self, engine: Engine, about: dict[str, Any]) -> None:
        """Write where a engine stands, and plain JSON about the run. Raises OSError; the last one is whole then."""
        replay = replay_tensors(engine)
        if replay and self._replay_of != engine.tasks:
            write_file(self._file("replay"), _REPLAY, _VERSION, replay, {"task": engine.tasks})
            self._replay_of = engine.tasks
        tensors, record = engine_tensors(engine)
        content = {"engine": record, "buffer": bool(replay), "task": engine.tasks, "run": about}
        write_file(self._file("state"), _STATE, _VERSION, tensors, content)
        self._saved = time.monotonic()
        self._too_large.clear()
        if not replay:
            self._file("replay").unlink(missing_ok=True)
        for file in self.folder.glob("inversion-*.safetensors"):
            if engine.done > 1 or file != self._inversion(engine.tasks):
                file.unlink(missing_ok=True)

    def load(self, engine: Engine) -> dict[str, Any] | None:
        """Put a new engine where the saved one stood; returns what `save` was told, or None if nothing was saved.

        Raises:
            DamagedFileError: if a file is damaged or does not fit.

        """
        file = self._file("state")
        if not os.path.lexists(file):
            return None
        tensors, content = read_file(file, _STATE, _VERSION, 1)
        replay: dict[str, Tensor] = {}
        try:
            if content["buffer"]:
                replay, told = read_file(self._file("replay"), _REPLAY, _VERSION, 1)
                if told["task"] != content["task"]:
                    raise ValueError(f"{self._file('replay').name} is of another task")
                self._replay_of = content["task"]
            restore(engine, tensors, content["engine" if "engine" in content else "learner"], replay)
            return _checked(content["run"])
        except _WRONG as error:
            raise _damaged(file, error) from error

    # --- an inversion ---

    def load_inversion(self, engine: Engine) -> dict[str, Any]:
        """Give a engine that stands before its inversion the unfinished one of the same task, if there is one.

        Returns:
            what was to be written down about the run with it.

        """
        file = self._inversion(engine.tasks)
        if engine.done > 1 or not os.path.lexists(file):
            return {}
        engine.inversion = Checkpoint.load(file)
        try:
            return _checked(engine.inversion.record["run"])
        except _WRONG as error:
            raise _damaged(file, error) from error

    def save_inversion(self, task: int, progress: Progress, began: float, about: Callable[[], dict[str, Any]]) -> None:
        """Write where an inversion stands, unless that was done a short time ago.

        Where that would be too large, the beginning of every chunk of images is written.

        Args:
            task: the task in which it is made.
            progress: of the last step.
            began: when the inversion began, by the monotonic clock.
            about: plain JSON about the run, for when it is written.

        """
        now = time.monotonic()
        if progress.phase in self._too_large:
            return
        if now - max(began, self._saved) >= self.saving.inversion:
            fits = self.write_inversion(task, progress.glance(), about())
            self._saved = time.monotonic()
            if fits:
                return
            self._too_large.add(progress.phase)
        if self._too_large and progress.fresh and progress.step.step == 0 and progress.number:
            self.write_inversion(task, progress.restart(), about())

    def write_inversion(self, task: int, checkpoint: Checkpoint, about: dict[str, Any]) -> bool:
        """Write an unfinished inversion and what is to be known about the run; returns whether it was small enough.

        Images that are finished are halved in precision: as pseudo-samples they are held so anyhow.
        """
        size = sum(
            tensor.numel() * (2 if name.startswith("kept.") else tensor.element_size())
            for name, tensor in checkpoint.tensors.items()
        )
        if size > self.saving.largest:
            return False
        tensors = {
            name: tensor.half() if name.startswith("kept.") else tensor for name, tensor in checkpoint.tensors.items()
        }
        Checkpoint(tensors, {**checkpoint.record, "run": about}).save(self._inversion(task))
        return True

    def _inversion(self, task: int) -> Path:
        return self.folder / f"inversion-{task + 1}.safetensors"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def check_place(engine: Engine, matrix: AccuracyMatrix, plan: RunPlan) -> None:
    """Whether a engine that was read back stands where its run can come to.

    Raises:
        DamagedFileError: if not: what was saved belongs to another run, or to none.

    """
    tasks, done, epoch = engine.tasks, engine.done, engine.stage_state.epoch
    before, now = plan.tasks[:tasks], plan.tasks[tasks : tasks + 1]
    stages = [stage.epochs for task in now for stage in task.stages]
    begun = before + now if done else before
    epochs = dict(enumerate(stages, start=2)).get(done, 0)
    facts = {
        "tasks": len(before) == tasks == len(matrix),
        "phase": done in range(3 + len(stages) if now else 1),
        "epoch": epoch in range(epochs + 1),
        "classes": [record.name for record in engine.memory.classes]
        == [name for task in before for name in task.classes],
        "head": list(engine.student.head.task_sizes) == [len(task.classes) for task in begun],
        "teacher": (engine.teacher is not None) == bool(done and before),
        "pseudo-samples": (engine.replay is not None) == bool(done > 1 and before and any(task.pseudo for task in now)),
        "test images": matrix.counts == tuple(task.test for task in before),
    }
    wrong = [name for name, fits in facts.items() if not fits]
    if wrong:
        raise DamagedFileError(
            f"the checkpoints are not of this run: see {', '.join(wrong)}; name another folder: --out DIR"
        )


def _checked(about: Any) -> dict[str, Any]:
    """What a run told of itself when it was saved."""
    whole = [*(about[key] for key in ("metrics", "peak", "threads")), about.get("peak_gpu", 0)]
    spent = [about["processor"], *about["seconds"].values()]
    if not all(type(number) is int and number >= 0 for number in whole):
        raise ValueError("its numbers are not whole")
    if not all(isinstance(number, int | float) and 0 <= number < math.inf for number in spent):
        raise ValueError("its times are none")
    return dict(about)


def _damaged(file: Path, error: Exception) -> DamagedFileError:
    what = f"it lacks {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]
    return DamagedFileError(f"{printable(file)} is not of this run: {what}; name another folder: --out DIR")
