"""A run for TensorBoard: the numbers and pictures of its folder, as scalars and images."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from remix.deploy.grids import open_picture
from remix.experiments.metrics_file import Event
from remix.support.settings import SettingError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoardLog", "require_tensorboard"]


def require_tensorboard() -> None:
    """Raise SettingError, with what to do, unless TensorBoard is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise SettingError(
            "--log tensorboard needs TensorBoard, which is not installed: "
            "pip install 'remix-dfcil[tensorboard]', or leave --log out (metrics.jsonl holds the same numbers)"
        )


class TensorBoardLog:
    """A context that turns events of ``metrics.jsonl`` into TensorBoard's files.

    With its first event it begins anew: the files of an earlier process are replaced, and whoever uses it tells it all
    events of the run from the first on. So nothing stands there twice after an interruption, and a process that may
    not write to the run removes nothing.

    Scalars: ``accuracy``, ``likelihood`` and ``seconds`` by task, ``training`` by epoch of the run, ``inversion`` by
    recorded step of the run; ``dreams`` are the pictures of a task.

    Args:
        folder: for TensorBoard's files.
        dreams: folder of the pictures ``task-N.png``.

    """

    def __init__(self, folder: Path, dreams: Path) -> None:
        self._folder, self._dreams = folder, dreams
        self._opened: SummaryWriter | None = None
        self._epochs = self._steps = 0
        self._kinds: dict[str, Callable[[Event], None]] = {
            "epoch": self._epoch,
            "inversion": self._inversion,
            "phase": self._phase,
            "task": self._task,
            "likelihood": self._likelihood,
        }

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self._opened is not None:
            self._opened.close()

    def __call__(self, event: Event) -> None:
        """Add an event of the run; kinds that hold nothing to plot are passed over."""
        add = self._kinds.get(event["event"])
        if add is not None:
            add(event)

    @property
    def _writer(self) -> SummaryWriter:
        if self._opened is None:
            from torch.utils.tensorboard import SummaryWriter

            for file in self._folder.glob("events.out.tfevents.*"):
                file.unlink()
            self._opened = SummaryWriter(str(self._folder))
        return self._opened

    def _epoch(self, event: Event) -> None:
        self._epochs += 1
        for term, value in event["terms"].items():
            self._scalar(f"training/{event['stage']}/{term}", value, self._epochs)
        self._scalar("training/learning rate", event["rate"], self._epochs)
        if "accuracy_macro" in event:
            self._scalar("training/accuracy, mean over tasks", event["accuracy_macro"], self._epochs)

    def _inversion(self, event: Event) -> None:
        self._steps += 1
        for term, value in event["terms"].items():
            self._scalar(f"inversion/{term}", value, self._steps)

    def _phase(self, event: Event) -> None:
        self._scalar(f"seconds/{event['phase']}", event["seconds"], event["task"])
        picture = self._dreams / f"task-{event['task']}.png"
        if event["phase"] == "dream" and picture.is_file():
            pixels = np.asarray(open_picture(picture).convert("RGB"))
            self._writer.add_image("dreams", pixels, event["task"], dataformats="HWC")

    def _task(self, event: Event) -> None:
        self._scalar("accuracy/mean over tasks", event["accuracy_macro"], event["task"])
        self._scalar("accuracy/mean over images", event["accuracy_micro"], event["task"])
        for number, accuracy in enumerate(event["accuracies"], start=1):
            self._scalar(f"accuracy/task {number}", accuracy, event["task"])
        self._writer.flush()

    def _likelihood(self, event: Event) -> None:
        for layer in event["layers"]:
            self._scalar(f"likelihood/{layer['layer']}", layer["gain"], event["task"])

    def _scalar(self, tag: str, value: float, step: int) -> None:
        self._writer.add_scalar(tag, value, step)
