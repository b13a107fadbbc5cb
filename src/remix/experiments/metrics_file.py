"""``metrics.jsonl``: everything that happened in a run, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Event", "Events", "MetricsFile", "read_events"]

Event = Mapping[str, Any]


class MetricsFile:
    """The file while a run writes it: lines are appended as things happen.

    Args:
        path: the file.
        length: what is beyond so many bytes was written by a process that was killed before it had saved, and goes.
        also: told of every event, besides.

    """

    def __init__(self, path: Path, length: int, also: Callable[[Event], None] | None = None) -> None:
        self._file = open(path, "ab")  # noqa: SIM115 (closed with the run)
        self._also = also
        if path.is_file():  # not the null device
            self._file.truncate(length)

    def write(self, event: str, **values: Any) -> None:
        """Append one line, to the disk at once. Raises OSError."""
        content = {"event": event, **values}
        self._file.write(json.dumps(content).encode() + b"\n")
        self._file.flush()
        if self._also is not None:
            self._also(content)

    @property
    def length(self) -> int:
        """In bytes."""
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


def read_events(path: Path, length: int | None = None) -> Events:
    """Read a file of metrics; a line that is no event is named and skipped.

    Args:
        path: the file; one that does not exist has no events.
        length: read only so many bytes.

    Raises:
        OSError: if it is there and cannot be read.

    """
    try:
        content = path.read_bytes()[:length]
    except FileNotFoundError:
        return Events((), ())
    events, damages = [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
        else:
            damages.append(f"{path}, line {number}: damaged, skipped")
    return Events(tuple(events), tuple(damages))
