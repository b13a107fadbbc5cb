"""Backbones by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from typing import Any, TypeVar

import torch

from remix.networks.backbone import Backbone
from remix.support.global_random import undisturbed
from remix.support.text import did_you_mean

Factory = TypeVar("Factory", bound=Callable[..., Any])

_factories: dict[str, Callable[..., Backbone]] = {}


def register_backbone(name: str, **fixed: object) -> Callable[[Factory], Factory]:
    """Decorate a class or function that returns a backbone, so that ``create_backbone(name)`` finds it.

    Args:
        name: what the user types. After one that ends with a colon comes a word, the first argument of the factory.
        fixed: arguments of the factory that this name settles, such as ``depth=32``. They are not options any more.

    Raises:
        ValueError: if the name is taken.

    """

    def decorate(factory: Factory) -> Factory:
        if name in _factories:
            raise ValueError(f"backbone {name!r} is registered already; choose another name")
        _factories[name] = partial(factory, **fixed)
        return factory

    return decorate


def list_backbones(pattern: str = "*") -> list[str]:
    """Return the names that match a shell pattern such as ``"resnet*"``, shortest first, then by alphabet.

    Names that go on after a colon, such as ``hf:PATH``, are not among them.
    """
    names = (name for name in _factories if fnmatch(name, pattern) and not name.endswith(":"))
    return sorted(names, key=lambda name: (len(name), name))


def backbone_options(name: str) -> dict[str, object]:
    """Return the options ``create_backbone(name, ...)`` takes, with their defaults.

    Raises:
        ValueError: if no backbone has this name.

    """
    factory = _find(name)
    fixed = factory.keywords if isinstance(factory, partial) else {}
    parameters = inspect.signature(factory).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.name not in fixed}


def backbone_factory(name: str) -> Callable[..., Backbone]:
    """The class or function behind a name. Raises ValueError; the message says what to type instead."""
    factory = _find(name)
    return factory.func if isinstance(factory, partial) else factory


def create_backbone(name: str, **options: object) -> Backbone:
    """Build a backbone by name, for example ``create_backbone("resnet32", width=8)``.

    Raises:
        ValueError: for an unknown name (the message lists the known ones) or a bad value of an option.
        TypeError: for an unknown option (the message lists those this backbone takes).

    """
    factory = _find(name)
    known = backbone_options(name)
    for option in options:
        if option not in known:
            raise TypeError(
                f"backbone {name!r} has no option {option!r}{did_you_mean(option, list(known))}; it takes: "
                + ", ".join(f"{key}={value!r}" for key, value in known.items())
            )
    return factory(**options)


def seeded_backbone(name: str, seed: int, **options: object) -> Backbone:
    """The same with first weights that a seed decides, whether or not the backbone takes a ``generator``."""
    own = {"generator": torch.Generator().manual_seed(seed)} if "generator" in backbone_options(name) else {}
    with undisturbed(seed):
        return create_backbone(name, **options, **own)


def _find(name: str) -> Callable[..., Backbone]:
    family, colon, rest = name.partition(":")
    if colon and rest and family + colon in _factories:
        return partial(_factories[family + colon], rest)
    if name not in _factories:
        names = list_backbones()
        raise ValueError(f"no backbone is called {name!r}{did_you_mean(name, names)}; known: {', '.join(names)}")
    return _factories[name]
