"""What a model has learned, when, and how well: one entry per step."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from remix._version import __version__
from remix.statistics.records import is_count
from remix.support.text import counted

__all__ = ["LearnStep", "check_class_names", "check_history", "check_step_name", "with_changed_classes", "with_note"]

LONGEST_NAME = 200
"""Characters, of a class or a step."""
_MOST_STEPS = 1000
_MOST_ACCURACIES = 100
_MOST_NOTES, _LONGEST_NOTE = 50, 1000


# Earlier versions kept these: 100 before and after, whatever became of the old classes. They are not read.
_SAY_NOTHING = {"old classes, dreams, before", "old classes, dreams"}


def _now() -> str:
    """The time; or that of SOURCE_DATE_EPOCH, so that equal steps can be equal bytes."""
    told = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        now = datetime.now(timezone.utc) if told is None else datetime.fromtimestamp(int(told), timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"SOURCE_DATE_EPOCH must be seconds since 1970, got {told!r}") from error
    return now.isoformat(timespec="seconds")


@dataclass(frozen=True, repr=False)
class LearnStep:
    """One step of learning.

    Attributes:
        classes: names of the classes that were learned or extended.
        images: training images of each of them.
        method: that was used, such as "remix" or "measure".
        accuracies: in percent, by what was tested, such as "new classes, held out".
        extended: those of ``classes`` that the model knew before.
        name: that the person gave to the step.
        date: when it ended, ISO 8601 with a time zone; now by default.
        remix: version of the package; this one by default.
        notes: what a person should know about it.

    Raises:
        ValueError: for what is not such a description, or too long for one.

    """

    classes: tuple[str, ...]
    images: tuple[int, ...]
    method: str
    accuracies: Mapping[str, float] = field(default_factory=dict)
    extended: tuple[str, ...] = ()
    name: str = ""
    date: str = field(default_factory=_now)
    remix: str = __version__
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_class_names(self.classes)
        if len(self.images) != len(self.classes) or not all(map(is_count, self.images)):
            raise ValueError(f"a step needs one number of images per class, got {str(self.images)[:60]}")
        if len(set(self.extended)) < len(self.extended) or not set(self.extended) <= set(self.classes):
            raise ValueError(f"a step cannot extend classes that it has no images of: {str(self.extended)[:60]}")
        check_step_name(self.name)
        for what, text in (("method", self.method), ("remix", self.remix)):
            _check_text(what, text)
        if len(self.accuracies) > _MOST_ACCURACIES:
            raise ValueError(f"a step holds at most {_MOST_ACCURACIES} accuracies, got {len(self.accuracies)}")
        for what, value in self.accuracies.items():
            _check_text("accuracies", what)
            if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= 100):
                raise ValueError(f"the accuracy {what!r} must be within 0..100 percent, got {str(value)[:60]}")
        if len(self.notes) > _MOST_NOTES:
            raise ValueError(f"a step holds at most {_MOST_NOTES} notes, got {len(self.notes)}")
        for note in self.notes:
            _check_text("a note", note, _LONGEST_NOTE)
        _check_date(self.date)

    def __repr__(self) -> str:
        """A line, and one for every note."""
        return "\n".join([f"LearnStep: {self.told()}", *(f"  note: {note}" for note in self.notes)])

    def told(self) -> str:
        """The step in a line."""
        images = f"{counted(len(self.classes), 'class')}, {counted(sum(self.images), 'image')}"
        accuracies = "".join(f", {value:.1f} % right ({what})" for what, value in self.accuracies.items())
        return f"{self.name}: " * bool(self.name) + f"{self.method}, {images}{accuracies}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists, for JSON."""
        return {
            "classes": list(self.classes),
            "images": list(self.images),
            "method": self.method,
            "accuracies": dict(self.accuracies),
            "extended": list(self.extended),
            "name": self.name,
            "date": self.date,
            "remix": self.remix,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, values: Any) -> LearnStep:
        """The inverse of `to_dict`. Raises ValueError if it is none."""
        if isinstance(values, dict):
            values = {"notes": [], **values}  # earlier versions kept none
        if not isinstance(values, dict) or set(values) != set(cls.__dataclass_fields__):
            raise ValueError(f"a step of its history is described as {str(values)[:60]}")
        lists = {key: values[key] for key in ("classes", "images", "extended", "notes")}
        if not all(isinstance(value, list) for value in lists.values()) or not isinstance(values["accuracies"], dict):
            raise ValueError(f"a step of its history is described as {str(values)[:60]}")
        kept = {what: value for what, value in values["accuracies"].items() if what not in _SAY_NOTHING}
        return cls(**{**values, **{key: tuple(value) for key, value in lists.items()}, "accuracies": kept})


def with_changed_classes(history: Sequence[LearnStep], names: Mapping[str, str | None]) -> tuple[LearnStep, ...]:
    """What a history is once classes are called otherwise, are one, or are gone; a step without classes goes too.

    Args:
        history: of the model.
        names: the new name of every class, or None if it is gone; so are notes that name it.

    """
    gone = [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)") for name, new in names.items() if new is None]
    known, found = set[str](), []
    for step in history:
        images: dict[str, int] = {}
        extended = {names[name] for name in step.extended}
        for name, count in zip(step.classes, step.images, strict=True):
            new = names[name]
            if new is not None:
                images[new] = images.get(new, 0) + count
        notes = tuple(note for note in step.notes if not any(one.search(note) for one in gone))
        if images:
            older = tuple(name for name in images if name in known or name in extended)
            counts = tuple(images.values())
            found.append(replace(step, classes=tuple(images), images=counts, extended=older, notes=notes))
        known |= images.keys()
    return tuple(found)


def with_note(history: Sequence[LearnStep], text: str) -> tuple[LearnStep, ...]:
    """With a note on its last step, that begins with the time; the oldest notes make room for it."""
    note = f"{_now()[:16].replace('T', ' ')}: {text}"
    note = note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE - 3]}..."
    notes = (*history[-1].notes, note)[-_MOST_NOTES:]
    return (*history[:-1], replace(history[-1], notes=notes))


def check_history(history: Sequence[LearnStep], classes: Sequence[str]) -> None:
    """Check that a history can be that of a model with these classes.

    Raises:
        ValueError: for classes that the model does not know, or that were learned twice, and for too many steps.

    """
    if len(history) > _MOST_STEPS:
        raise ValueError(f"a history holds at most {_MOST_STEPS} steps, got {len(history)}")
    known, learned = set(classes), set[str]()
    for step in history:
        if not isinstance(step, LearnStep):
            raise ValueError(f"a history holds steps of learning, got {type(step).__name__}")
        new = set(step.classes) - set(step.extended)
        if foreign := sorted(set(step.classes) - known):
            raise ValueError(f"its history tells of a class {foreign[0]!r} that it does not have")
        if twice := sorted(new & learned):
            raise ValueError(f"its history tells of learning {twice[0]!r} twice")
        learned |= new


def check_step_name(name: str) -> None:
    """Whether a step may be called so. Raises ValueError if not."""
    _check_text("name", name)


def _check_text(what: str, text: object, longest: int = LONGEST_NAME) -> None:
    if not isinstance(text, str) or len(text) > longest or _unsafe(text):
        raise ValueError(f"{what} of a step must be a short text without control characters, got {str(text)[:60]!r}")


def _check_date(text: object) -> None:
    try:
        if not isinstance(text, str) or len(text) > 40 or datetime.fromisoformat(text).tzinfo is None:
            raise ValueError("no time zone")
    except ValueError as error:
        raise ValueError(f"the date of a step must be ISO 8601 with a time zone, got {str(text)[:60]!r}") from error


def check_class_names(names: Sequence[str]) -> None:
    """Check names of classes; they may be written in any script, but must be safe to print and to use in file names.

    Raises:
        ValueError: for no names, one that is there twice, is empty, too long, or has control characters or slashes.

    """
    if not names:
        raise ValueError("there must be at least one class")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip() or name in (".", ".."):
            raise ValueError(f"{repr(name)[:60]} is not a name for a class")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"the class name {name[:40]!r}... has {len(name)} characters, at most {LONGEST_NAME}")
        if _unsafe(name) or "/" in name or "\\" in name:
            raise ValueError(f"the class name {name!r} has control characters or slashes")
        if name in seen:
            raise ValueError(f"the class name {name!r} is there twice")
        seen.add(name)


def _unsafe(text: str) -> bool:
    """Whether it holds what is not shown as itself: control characters, changes of direction, ends of lines."""
    return any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in text)
