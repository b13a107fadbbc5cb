"""What a class may be called."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

__all__ = ["LONGEST_NAME", "check_class_names", "unsafe"]

LONGEST_NAME = 200
"""Characters."""


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
        if unsafe(name) or "/" in name or "\\" in name:
            raise ValueError(f"the class name {name!r} has control characters or slashes")
        if name in seen:
            raise ValueError(f"the class name {name!r} is there twice")
        seen.add(name)


def unsafe(text: str) -> bool:
    """Whether it holds what is not shown as itself: control characters, changes of direction, ends of lines."""
    return any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in text)
