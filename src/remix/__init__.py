"""REMIX: teach an image classifier new classes without the data of the old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remix._version import __version__

if TYPE_CHECKING:
    from remix.deploy.learner import Learner, load

__all__ = ["Learner", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """`remix.Learner` and `remix.load`, imported when they are asked for: they need torch, which takes its time."""
    if name in ("Learner", "load"):
        from remix.deploy import learner

        return getattr(learner, name)
    raise AttributeError(f"module 'remix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "Learner", "load"]
