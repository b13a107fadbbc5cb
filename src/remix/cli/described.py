"""What a method, network or data set is and what can be set, in words, from the docstrings of their code."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import docstring_parser

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Setting", "about", "field_settings", "options_of", "show_about"]


class Setting(NamedTuple):
    """Its name, its default as it would be typed ("" where there is none), and what it means."""

    name: str
    default: str
    meaning: str


def about(thing: Any) -> str:
    """What a docstring says before its arguments; plain text."""
    found = docstring_parser.parse(inspect.getdoc(thing) or "")
    return _plain("\n\n".join(filter(None, [found.short_description, found.long_description])))


def _plain(text: str) -> str:
    paragraphs = text.replace("``", "").replace("`", "").split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _notes(thing: Any) -> dict[str, str]:
    """Meanings of arguments; a class says only what those above it do not."""
    found: dict[str, str] = {}
    for kind in reversed(inspect.getmro(thing)) if inspect.isclass(thing) else [thing]:
        for note in docstring_parser.parse(kind.__doc__ or "").params:
            found[note.arg_name] = _plain(note.description or "")
    return found


def options_of(factory: Callable[..., Any], defaults: Mapping[str, Any]) -> list[Setting]:
    """Options of a function or class, given with their defaults."""
    notes = _notes(factory)
    return [Setting(name, _typed(value), notes.get(name, "")) for name, value in defaults.items()]


def field_settings(kind: Any) -> dict[str, list[Setting]]:
    """The fields of a dataclass; then, once each, those of the dataclasses that they hold, by a title for them."""
    found = {"": _fields(kind)}
    places: dict[Any, list[str]] = {}
    _collect(kind, "", places)
    for inner, names in places.items():
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        found[f"within {shown}"] = _fields(inner)
    return found


def _fields(kind: Any) -> list[Setting]:
    notes = _notes(kind)
    return [Setting(one.name, _typed(_default(one)), notes.get(one.name, "")) for one in dataclasses.fields(kind)]


def _default(one: dataclasses.Field[Any]) -> Any:
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default


def _collect(kind: Any, at: str, places: dict[Any, list[str]]) -> None:
    """Where, as dotted names, dataclasses are held by their kind; nearest first."""
    hints, below = get_type_hints(kind), []
    for one in dataclasses.fields(kind):
        parts = (hints[one.name], *get_args(hints[one.name]))
        inner = next((part for part in parts if dataclasses.is_dataclass(part)), None)
        if inner is not None:
            path = f"{at}{one.name}"
            places.setdefault(inner, []).append(path)
            below.append((inner, path))
    for inner, path in below:
        _collect(inner, f"{path}.", places)


def _typed(value: Any) -> str:
    """As it is typed in YAML and behind --set; of a dataclass what differs from its own defaults."""
    if value is inspect.Parameter.empty:
        return ""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {one.name: (getattr(value, one.name), _default(one)) for one in dataclasses.fields(value)}
        changed = [f"{name}: {_typed(now)}" for name, (now, usual) in held.items() if now != usual]
        return "{" + ", ".join(changed) + "}" if changed else ""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_typed, value)) + "]"
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_about(console: Console, title: str, lines: Sequence[str], sections: Mapping[str, Sequence[Setting]]) -> None:
    """A name in bold, what it is, and its settings, each with its default and, below, its meaning."""
    from textwrap import wrap

    from rich.text import Text

    def tell(text: str, indent: str = "", style: str = "") -> None:
        for line in wrap(text, console.width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False):
            console.print(Text(line, style=style), soft_wrap=True)

    tell(title, style="bold")
    for line in lines:
        for paragraph in line.split("\n"):
            tell(paragraph)
    for heading, settings in sections.items():
        console.print()
        tell(heading, style="italic")
        for one in settings:
            tell(f"{one.name}  {one.default}", "  ", "bold")
            tell(one.meaning, " " * 6)
