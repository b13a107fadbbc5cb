"""Things by name, each registered once."""

from __future__ import annotations

from typing import Any, TypeVar

from remix.support.text import did_you_mean

__all__ = ["Registry"]

Kind = TypeVar("Kind")


class Registry(dict[str, Kind]):
    """Classes or functions by name.

    Args:
        what: one of them in words, such as "method".

    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def register(self, name: str, thing: Any) -> None:
        """Add one. Raises ValueError if the name is taken; the same thing may come twice, from a reloaded module."""
        known = self.get(name)
        if known is not None and _path(known) != _path(thing):
            raise ValueError(f"there is a {self.what} {name!r} already: {_path(known)}")
        self[name] = thing

    def find(self, name: str) -> Kind:
        """The one of a name. Raises ValueError; the message says what to type instead."""
        if name not in self:
            hint = did_you_mean(name, self)
            raise ValueError(f"there is no {self.what} {name[:60]!r}{hint}; there are: {', '.join(self)}")
        return self[name]


def _path(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", thing))
