"""Everything that happened in a run: ``metrics.jsonl``, one JSON object per line, and the same for TensorBoard."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from remix.deploy.figures import open_picture
from remix.support.documents import DocumentError, parse_json
from remix.support.files import open_appending, read_limited
from remix.support.settings import SettingError
from remix.support.text import printable

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["Event", "Events", "MetricsFile", "TensorBoardLog", "read_events", "require_tensorboard"]

Event = Mapping[str, Any]
_LONGEST = 1 << 28  # bytes: of runs of a hundred thousand epochs
_NAMED = 10  # damaged lines
_FOREVER = 1e12  # seconds

# What an event of each kind must have, for a reader to rely on. More may be there, and other kinds.
_CONTENT: dict[str, dict[str, type | tuple[type, ...]]] = {
    "start": {"command": str, "versions": dict, "hardware": dict},
    "epoch": {"task": int, "stage": str, "epoch": int, "rate": (int, float), "terms": dict},
    "inversion": {"task": int, "phase": str, "number": int, "step": int, "terms": dict},
    "phase": {"task": int, "phase": str, "seconds": (int, float)},
    "task": {"task": int, "accuracies": list, "accuracy_macro": (int, float), "accuracy_micro": (int, float)},
    "likelihood": {"task": int, "layers": list},
    "oracle": {"task": int, "accuracy_micro": (int, float)},
}


class MetricsFile:
    """The file while a run writes it: lines are appended as things happen.

    Args:
        path: the file; None for nowhere.
        length: what is beyond so many bytes was written by a process that was killed before it had saved, and goes.
        also: told of every event, besides.

    """

    def __init__(self, path: Path | None, length: int, also: Callable[[Event], None] | None = None) -> None:
        self._file = open(os.devnull, "ab") if path is None else open_appending(path)  # noqa: SIM115
        self._also = also
        if path is not None:
            self._file.truncate(_whole_lines(path, length))

    def write(self, event: str, **values: Any) -> None:
        """Append one line, to the disk at once. Raises OSError."""
        content = {"event": event, **values}
        self._file.write(json.dumps(content).encode() + b"\n")
        self._file.flush()
        if self._also is not None:
            self._also(content)

    @property
    def length(self) -> int:
        """In bytes; all of them are on the disk, for a saved run to count on."""
        os.fsync(self._file.fileno())
        return self._file.seek(0, 2)

    def close(self) -> None:
        """No more lines."""
        self._file.close()


@dataclass(frozen=True)
class Events:
    """What was read of a file: the events in their order, and a sentence for every line that could not be read."""

    events: tuple[Event, ...]
    damages: tuple[str, ...]

    def of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]


def read_events(path: Path) -> Events:
    """Read a file of metrics; a line that is no event is named and skipped.

    Args:
        path: the file; one that does not exist has no events.

    Raises:
        OSError: if it is there and cannot be read.
        ValueError: if it is longer than any run makes it.

    """
    try:
        content = read_limited(path, _LONGEST)
    except FileNotFoundError:
        return Events((), ())
    events, damaged = [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            event = parse_json(line)
        except DocumentError:
            event = None
        if _valid(event):
            events.append(event)
        else:
            damaged.append(number)
    damages = [f"{printable(path)}, line {number}: damaged, skipped" for number in damaged[:_NAMED]]
    if len(damaged) > _NAMED:
        damages.append(f"{printable(path)}: {len(damaged) - _NAMED} more lines are damaged, skipped")
    return Events(tuple(events), tuple(damages))


def _whole_lines(path: Path, length: int) -> int:
    """How much to keep: no more than is there, should lines have been lost, and no part of one."""
    size = path.stat().st_size
    if length <= size:
        return length
    return read_limited(path, _LONGEST).rfind(b"\n") + 1


def _valid(event: Any) -> bool:
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return False
    fields = _CONTENT.get(event["event"], {})
    if not all(isinstance(event.get(name), kind) for name, kind in fields.items()):
        return False
    if not all(math.isfinite(event[name]) for name in fields if isinstance(event[name], float)):
        return False
    if event["event"] == "phase" and not 0 <= event["seconds"] < _FOREVER:
        return False
    tested = event.get("accuracy_macro", 0.0)  # of an epoch only if it was tested
    if not isinstance(tested, int | float) or not math.isfinite(tested):
        return False
    layers = event.get("layers", []) if event["event"] == "likelihood" else []
    terms = event["terms"].values() if "terms" in fields else []
    return all(isinstance(value, int | float) for value in terms) and all(
        isinstance(layer, dict) and isinstance(layer.get("layer"), str) and isinstance(layer.get("gain"), int | float)
        for layer in layers
    )


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

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self._opened is not None:
            self._opened.close()

    def __call__(self, event: Event) -> None:
        """Add an event of the run; kinds that hold nothing to plot are passed over."""
        kind, task = event["event"], event.get("task", 0)
        if kind == "epoch":
            self._epochs += 1
            self._add(
                {f"training/{event['stage']}/{term}": value for term, value in event["terms"].items()}, self._epochs
            )
            self._add({"training/learning rate": event["rate"]}, self._epochs)
            if "accuracy_macro" in event:
                self._add({"training/accuracy, mean over tasks": event["accuracy_macro"]}, self._epochs)
        elif kind == "inversion":
            self._steps += 1
            self._add({f"inversion/{term}": value for term, value in event["terms"].items()}, self._steps)
        elif kind == "phase":
            self._add({f"seconds/{event['phase']}": event["seconds"]}, task)
            picture = self._dreams / f"task-{task}.png"
            if event["phase"] == "dream" and picture.is_file():
                pixels = np.asarray(open_picture(picture).convert("RGB"))
                self._writer.add_image("dreams", pixels, task, dataformats="HWC")
        elif kind == "task":
            means = {"tasks": event["accuracy_macro"], "images": event["accuracy_micro"]}
            self._add({f"accuracy/mean over {what}": value for what, value in means.items()}, task)
            self._add({f"accuracy/task {number}": one for number, one in enumerate(event["accuracies"], start=1)}, task)
            self._writer.flush()
        elif kind == "likelihood":
            self._add({f"likelihood/{layer['layer']}": layer["gain"] for layer in event["layers"]}, task)

    def _add(self, scalars: Mapping[str, float], step: int) -> None:
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    @property
    def _writer(self) -> SummaryWriter:
        if self._opened is None:
            from torch.utils.tensorboard import SummaryWriter

            for file in self._folder.glob("events.out.tfevents.*"):
                file.unlink()
            self._opened = SummaryWriter(str(self._folder))
        return self._opened
