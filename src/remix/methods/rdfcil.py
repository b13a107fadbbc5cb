"""R-DFCIL: relation-guided representation learning (Gao et al., 2022)."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass

from remix.inversion import GeneratorSettings
from remix.learning.engine import Engine
from remix.learning.losses import LossScales
from remix.learning.method import Step
from remix.learning.stage import Stage, Training, Work
from remix.methods.distillation import balance_head, distil, projectors
from remix.methods.generated import Generated
from remix.methods.plain import everything, first_task
from remix.methods.registry import method

__all__ = ["Rdfcil"]


@method("rdfcil")
@dataclass(frozen=True)
class Rdfcil(Generated):
    """R-DFCIL: a generator inverts the old model; relations between new samples are kept, then the head is balanced.

    Args:
        first: training of the first task.
        later: training of everything in later tasks.
        balance: training of the head afterwards.
        scales: weights of the losses before they follow the numbers of classes.
        image_generator: training of the generator, new in every task.

    """

    first: Training = Training(160, 0.1, (80, 120))
    later: Training = Training(160, 0.1, (80, 120))
    balance: Training = Training(40, 0.005)
    scales: LossScales = LossScales(local=0.5, head=0.0)
    image_generator: GeneratorSettings = GeneratorSettings()

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once, then the head alone."""
        if step == "first":
            return first_task(self.first)
        return [
            Stage("train", self.later, self._train),
            Stage("balance the head", self.balance, self._balance),
        ]

    def _train(self, engine: Engine) -> Work:
        scales = self.scales.for_task(engine.new_classes, engine.old_classes)
        return Work([*everything(engine), projectors(engine)], distil(engine, scales))

    def _balance(self, engine: Engine) -> Work:
        scales = self.scales.for_task(engine.new_classes, engine.old_classes)
        return balance_head(engine, self.scales.local, scales.hard)
