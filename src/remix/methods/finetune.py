"""Fine-tuning: the lower bound."""

from __future__ import annotations

from dataclasses import dataclass

from remix.learning.engine import Engine
from remix.learning.stage import Losses
from remix.methods.plain import OneStage, global_cross_entropy
from remix.methods.registry import method

__all__ = ["Finetune"]


@method("finetune")
@dataclass(frozen=True)
class Finetune(OneStage):
    """Train on the new classes and do nothing about the old ones: the lower bound.

    Settings as in `OneStage`.
    """

    def losses(self, engine: Engine) -> Losses:
        """Cross-entropy over all classes seen."""
        return global_cross_entropy(engine).losses
