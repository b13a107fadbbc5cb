"""Joint training: the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.stage import Stage, Training, Work
from remix.methods.plain import FIRST, global_cross_entropy
from remix.methods.registry import method

__all__ = ["Joint"]


@method("joint")
@dataclass(frozen=True)
class Joint(Method):
    """Train from scratch on the data of all classes so far, old ones included: the upper bound.

    Args:
        training: of every task.

    """

    keeps: ClassVar[str] = "all images"
    keeps_images: ClassVar[bool] = True
    by_steps: ClassVar[bool] = False
    training: Training = FIRST

    def stages(self, step: Step) -> list[Stage]:
        """From the weights the run began with, on everything."""
        return [Stage("train", self.training, _start_over)]


def _start_over(engine: Engine) -> Work:
    if not engine.stage_state.epoch:
        engine.backbone.load_state_dict(engine.untrained)
        engine.student.head.start_over(generator=engine.generator)
    return global_cross_entropy(engine)
