"""Methods by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from remix.learning.method import Method
from remix.support.registry import Registry
from remix.support.text import did_you_mean

__all__ = ["create_method", "list_methods", "method", "method_class"]

_METHODS: Registry[type[Method]] = Registry("method")
Kind = TypeVar("Kind", bound=type[Method])


def method(name: str) -> Callable[[Kind], Kind]:
    """Register a method under a name: ``@method("mine")`` above a frozen dataclass that derives from `Method`.

    Raises:
        ValueError: if the name is taken.

    """

    def register(kind: Kind) -> Kind:
        _METHODS.register(name, kind)
        kind.name = name
        return kind

    return register


def method_class(name: str) -> type[Method]:
    """The class of a method.

    Raises:
        ValueError: for an unknown name; the message says what to type instead.

    """
    return _METHODS.find(name)


def create_method(name: str, **settings: Any) -> Method:
    """A method with the given settings, by default those for CIFAR-100 in ten tasks.

    ``setting="paper"`` and such give the settings that have this name (see `Method.named`); others go before them.

    Raises:
        ValueError: for an unknown name, or a setting the method does not have.

    """
    kind = method_class(name)
    known = list(inspect.signature(kind).parameters)
    for setting in settings:
        if setting not in known:
            hint = did_you_mean(setting, known)
            raise ValueError(f"method {name!r} has no setting {setting!r}{hint}; it has: {', '.join(known) or 'none'}")
    if not kind.named or "setting" not in settings:
        return kind(**settings)
    return replace(kind.of(settings["setting"]), **settings)  # type: ignore[type-var]


def list_methods() -> dict[str, str]:
    """Every method with the first line of its description."""
    return {name: (inspect.getdoc(kind) or "").split("\n")[0] for name, kind in _METHODS.items()}
