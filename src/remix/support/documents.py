"""JSON and YAML from elsewhere: bounded in length, depth and what their aliases unfold to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from remix.support.files import read_limited
from remix.support.text import printable

__all__ = ["DocumentError", "parse_json", "parse_yaml", "read_json", "read_yaml"]

_DEEPEST = 60
_MOST_NODES = 100_000  # of a YAML document with its aliases unfolded
_LONGEST_YAML, _LONGEST_JSON = 1 << 20, 64 << 20  # bytes


class DocumentError(ValueError):
    """A text that is no such document; the message is what comes after "NAME is" or "NAME has"."""


def read_json(path: str | Path) -> Any:
    """The content of a JSON file.

    Raises:
        DocumentError: with the file's name, if it is not sound.
        OSError: if it cannot be read; also for pipes and devices.

    """
    return _named(path, parse_json, _LONGEST_JSON)


def read_yaml(path: str | Path) -> Any:
    """The content of a YAML file. Raises as `read_json`."""
    return _named(path, parse_yaml, _LONGEST_YAML)


def parse_json(text: str | bytes) -> Any:
    """JSON in which no object has a name twice, no deeper than a person nests, its texts whole characters.

    Raises:
        DocumentError: if it is not.

    """
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except DocumentError:
        raise
    except RecursionError:
        raise DocumentError("nested too deeply") from None
    except ValueError as error:  # also numbers of thousands of digits and bytes that are not UTF-8
        raise DocumentError("not JSON") from error
    _check(value)
    return value


def parse_yaml(text: str) -> Any:
    """YAML of plain values, as `yaml.safe_load` reads it.

    Raises:
        DocumentError: if it is not YAML (the message has the line), too deep, or too large once unfolded.

    """
    if len(text) > _LONGEST_YAML:
        raise DocumentError(f"longer than {_LONGEST_YAML:,} characters")
    try:
        value = yaml.load(text, _BoundedLoader)
    except DocumentError:
        raise
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        raise DocumentError("not YAML" + (f" in line {place.line + 1}" if place is not None else "")) from error
    except (ValueError, RecursionError) as error:  # a date of month 13, a number of thousands of digits
        raise DocumentError("not YAML") from error
    _check(value)
    return value


class _BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Counts nodes with aliases unfolded, and refuses before anything large is made."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """As the library's, within bounds."""
        alias, before = self.check_event(yaml.AliasEvent), self._nodes
        self._depth += 1
        self._nodes += 1
        if self._depth > _DEEPEST:
            raise DocumentError("nested too deeply")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias:
            if id(node) not in self._sizes:
                raise DocumentError("an alias of what it stands in")
            self._nodes += self._sizes[id(node)]
        if self._nodes > _MOST_NODES:
            raise DocumentError("too large once its aliases are unfolded")
        self._sizes.setdefault(id(node), self._nodes - before)
        return node


def _named(path: str | Path, parse: Any, most: int) -> Any:
    name = printable(str(path))
    try:
        return parse(read_limited(path, most).decode())
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name} is not text in UTF-8") from error
    except DocumentError as error:
        raise DocumentError(f"{name} is {error}") from error
    except ValueError as error:  # of `read_limited`, with the name
        raise DocumentError(str(error)) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise DocumentError(f"ambiguous: it has {twice[:60]!r} twice")
    return found


def _check(value: Any) -> None:
    """Depth, plain values, and texts that can be written again: half of a surrogate pair cannot."""
    level = [value]
    for _ in range(_DEEPEST):
        if not level:
            return
        level = [item for entry in level for item in _inside(entry)]
    if level:
        raise DocumentError("nested too deeply")


def _inside(entry: Any) -> Iterator[Any]:
    if isinstance(entry, str):
        try:
            entry.encode()
        except UnicodeEncodeError:
            raise DocumentError("not text in UTF-8: it has half of a surrogate pair") from None
    elif isinstance(entry, Mapping):
        yield from entry
        yield from entry.values()
    elif isinstance(entry, list):
        yield from entry
    elif isinstance(entry, int) and entry.bit_length() > 64:
        raise DocumentError("not of plain values: it has a number of more than 64 bits")
    elif entry is not None and not isinstance(entry, int | float):
        raise DocumentError(f"not of plain values: it has a {type(entry).__name__}, which belongs in quotes")
