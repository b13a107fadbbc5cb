"""REMIX: teach an image classifier new classes without the data of the old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remix._version import __version__

if TYPE_CHECKING:
    from remix import (
        data,
        deploy,
        experiments,
        inversion,
        laplace,
        learning,
        methods,
        networks,
        report,
        reproduce,
        statistics,
    )
    from remix.deploy.learner import Learner, load

__all__ = [
    "Learner", "__version__", "data", "deploy", "experiments", "inversion", "laplace", "learning", "load", "methods",
    "networks", "report", "reproduce", "statistics",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """All of `__all__`, imported when it is asked for: it needs torch, which takes its time."""
    from importlib import import_module

    if name in ("Learner", "load"):
        return getattr(import_module("remix.deploy.learner"), name)
    if name in __all__:
        return import_module(f"remix.{name}")
    from remix.support.text import did_you_mean

    raise AttributeError(f"module 'remix' has no attribute {name!r}{did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
