"""Joint training: the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from remix.learning.learner import Learner
from remix.learning.method import Method
from remix.learning.sgd import Sgd
from remix.learning.stage import Stage
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

    joint: ClassVar[bool] = True
    training: Sgd = FIRST

    def stages(self, learner: Learner) -> list[Stage]:
        """From the weights the run began with, on everything."""

        def start_over() -> None:
            if learner.stage_state.epoch:
                return
            assert isinstance(learner.backbone, nn.Module)
            learner.backbone.load_state_dict(learner.untrained)
            learner.student.head.start_over(generator=learner.generator)

        return [Stage("train", [learner.student], self.training, global_cross_entropy(learner), on_epoch=start_over)]
