"""The accuracy matrix of a run, and the numbers that are read from it.

``macro`` is the mean over tasks, ``micro`` the share of all test images. They agree when the test sets of all tasks are
of one size, and every number that could be either says which it is. Everything is in percent.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from remix.support.files import read_limited, write_text
from remix.support.text import printable

__all__ = ["METRICS", "AccuracyMatrix", "Average"]

Average = Literal["macro", "micro"]
METRICS = {
    "last_accuracy_macro": "last accuracy",
    "average_incremental_accuracy_macro": "average incremental accuracy",
    "forgetting": "forgetting",
}
"""The numbers that are shown of a run, all in percent and means over tasks, with their names."""
_LONGEST = 1 << 26  # bytes of a matrix of a thousand tasks


class AccuracyMatrix:
    """After every task, how many test images of every task so far were classified correctly.

    Prediction is among all classes seen so far, without the task being told. Steps and tasks count from 0 and -1 is the
    last, as for a list; ``step`` t is the state after task t was learned, and its row has t + 1 entries.
    """

    def __init__(self) -> None:
        self._correct: list[tuple[int, ...]] = []
        self._counts: tuple[int, ...] = ()

    def add_row(self, correct: Sequence[int], counts: Sequence[int]) -> None:
        """Add the result after one more task.

        Args:
            correct: number of correctly classified test images of each task so far, the new one last.
            counts: number of test images of each task so far.

        Raises:
            ValueError: if there is not one entry per task so far, a number is impossible, or the test set of an earlier
                task has another size than before. Nothing is added then.

        """
        tasks = len(self) + 1
        if len(correct) != tasks or len(counts) != tasks:
            raise ValueError(
                f"row {tasks} of the matrix needs {tasks} correct and {tasks} counts, one per task so far; "
                f"got {len(correct)} and {len(counts)}"
            )
        for task, (right, count) in enumerate(zip(correct, counts, strict=True)):
            if isinstance(right, float) or isinstance(count, float) or not 0 <= right <= count or count < 1:
                raise ValueError(
                    f"task {task}: {right} correct of {count} is impossible; both must be numbers of images"
                )
        for task, (before, now) in enumerate(zip(self._counts, counts, strict=False)):
            if before != now:
                raise ValueError(f"the test set of task {task} had {before} images before and has {now} now")
        self._correct.append(tuple(int(right) for right in correct))
        self._counts = tuple(int(count) for count in counts)

    def __len__(self) -> int:
        """Number of tasks learned."""
        return len(self._correct)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AccuracyMatrix):
            return NotImplemented
        return (self._correct, self._counts) == (other._correct, other._counts)

    def __repr__(self) -> str:
        return f"AccuracyMatrix(tasks={len(self)})"

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of test images of each task."""
        return self._counts

    def correct(self, step: int = -1) -> tuple[int, ...]:
        """Number of correct test images of each task so far after a step. Raises IndexError if there is none."""
        return self._correct[self._step(step)]

    def row(self, step: int = -1) -> tuple[float, ...]:
        """Accuracy on each task so far after a step."""
        return tuple(100 * right / count for right, count in zip(self.correct(step), self._counts, strict=False))

    def accuracy(self, step: int = -1, *, average: Average) -> float:
        """Accuracy on everything seen so far, as the mean over tasks (macro) or over test images (micro)."""
        if average == "macro":
            return _mean(self.row(step))
        if average == "micro":
            correct = self.correct(step)
            return 100 * sum(correct) / sum(self._counts[: len(correct)])
        raise ValueError(f"average must be 'macro' or 'micro', got {average!r}")

    def average_incremental_accuracy(self, step: int = -1, *, average: Average) -> float:
        """Mean of :meth:`accuracy` over all steps up to this one, the first included."""
        return _mean([self.accuracy(before, average=average) for before in range(self._step(step) + 1)])

    def new_task_accuracy(self, step: int = -1) -> float:
        """Accuracy on the task just learned."""
        return self.row(step)[-1]

    def old_task_accuracy(self, step: int = -1) -> float | None:
        """Mean accuracy over the tasks before the one just learned; None after the first task."""
        old = self.row(step)[:-1]
        return _mean(old) if old else None

    def forgetting(self, step: int = -1) -> float | None:
        """Mean over earlier tasks of their best accuracy before this step minus that now; None after the first task."""
        return self._mean_change(step, lambda now, history: max(history) - now)

    def backward_transfer(self, step: int = -1) -> float | None:
        """Mean over earlier tasks of the accuracy now minus that when just learned; None after the first task."""
        return self._mean_change(step, lambda now, history: now - history[0])

    def summary(self) -> dict[str, float | None]:
        """The numbers of the whole run, after its last task. Raises IndexError before the first."""
        return {
            "last_accuracy_macro": self.accuracy(average="macro"),
            "last_accuracy_micro": self.accuracy(average="micro"),
            "average_incremental_accuracy_macro": self.average_incremental_accuracy(average="macro"),
            "average_incremental_accuracy_micro": self.average_incremental_accuracy(average="micro"),
            "forgetting": self.forgetting(),
            "backward_transfer": self.backward_transfer(),
            "new_task_accuracy": self.new_task_accuracy(),
            "old_task_accuracy": self.old_task_accuracy(),
        }

    def to_dict(self) -> dict[str, list[Any]]:
        """The matrix as plain JSON: ``counts`` per task and ``correct`` per step and task."""
        return {"counts": list(self._counts), "correct": [list(row) for row in self._correct]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AccuracyMatrix:
        """Read what :meth:`to_dict` gave. Raises ValueError if it is not such a matrix."""
        try:
            counts, rows = content["counts"], content["correct"]
            matrix = cls()
            for row in rows:
                matrix.add_row(row, counts[: len(row)])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an accuracy matrix: {error}") from error
        if len(matrix) != len(counts):
            raise ValueError(f"not an accuracy matrix: {len(counts)} tasks but {len(matrix)} rows")
        return matrix

    def to_csv(self) -> str:
        """The accuracies as a table, one line per step, after a line with the number of test images of each task.

        The same matrix gives the same bytes, and :meth:`from_csv` gives the same matrix.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["after_task", *(f"task_{task + 1}" for task in range(len(self)))])
        writer.writerow(["test_images", *self._counts])
        for step in range(len(self)):
            padding = [""] * (len(self) - step - 1)
            writer.writerow([step + 1, *(repr(accuracy) for accuracy in self.row(step)), *padding])
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> AccuracyMatrix:
        """Read what :meth:`to_csv` gave. Raises ValueError if the text is anything else."""
        matrix = cls()
        try:
            _, (_, *counts), *rows = csv.reader(io.StringIO(text))
            sizes = [int(count) for count in counts]
            for _, *cells in rows:
                shares = [float(cell) for cell in cells[: len(matrix) + 1]]
                correct = [round(share * size / 100) for share, size in zip(shares, sizes, strict=False)]
                matrix.add_row(correct, sizes[: len(correct)])
        except (ValueError, OverflowError, csv.Error) as error:
            raise ValueError(f"not an accuracy matrix: {error}") from error
        if matrix.to_csv() != text:
            raise ValueError("not an accuracy matrix: the accuracies do not follow from the numbers of test images")
        return matrix

    def write(self, path: str | Path) -> None:
        """Write :meth:`to_csv` to a file in one step. Raises OSError if it cannot; the file is unchanged then."""
        write_text(path, self.to_csv())

    @classmethod
    def read(cls, path: str | Path) -> AccuracyMatrix:
        """Read what :meth:`write` wrote. Raises OSError if it cannot be read, ValueError if it is another."""
        try:
            # As bytes, so that no system translates the ends of lines.
            return cls.from_csv(read_limited(path, _LONGEST).decode())
        except ValueError as error:
            raise ValueError(f"{printable(path)}: {error}") from error

    def _step(self, step: int) -> int:
        if not -len(self) <= step < len(self):
            raise IndexError(f"the matrix has {len(self)} steps, asked for step {step}")
        return step % len(self)

    def _mean_change(self, step: int, change: Callable[[float, list[float]], float]) -> float | None:
        """Mean over earlier tasks of a function of the accuracy now and of those before, oldest first."""
        step = self._step(step)
        rows = [self.row(before) for before in range(step + 1)]
        return (
            _mean([change(rows[-1][task], [row[task] for row in rows[task:-1]]) for task in range(step)])
            if step
            else None
        )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
