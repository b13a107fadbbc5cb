"""ZS-CLIP: zero-shot classification by the names of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from remix.learning.method import Method, Step
from remix.learning.stage import Stage
from remix.methods.registry import method

__all__ = ["ZsClip"]


@method("zs-clip")
@dataclass(frozen=True)
class ZsClip(Method):
    """Zero-shot: classes by their names alone, through a text head; nothing is trained."""

    transformers: ClassVar[bool] = True
    by_steps: ClassVar[bool] = False

    @property
    def trains(self) -> bool:
        """No."""
        return False

    def head_kind(self, asked: str) -> str:
        """Of texts."""
        if asked != "text":
            raise ValueError(f"the method {self.name} knows classes by their names: set network.head=text")
        return asked

    def adapter_kind(self, asked: str | None) -> str | None:
        """None: nothing learns."""
        return None

    def stages(self, step: Step) -> list[Stage]:
        """None."""
        return []
