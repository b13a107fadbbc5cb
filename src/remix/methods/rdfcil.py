"""R-DFCIL: relation-guided representation learning (Gao et al., 2022)."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass

from remix.inversion import GeneratorSettings
from remix.learning.learner import Learner
from remix.learning.scaling import LossScales
from remix.learning.sgd import Sgd
from remix.learning.stage import Stage
from remix.methods.distillation import balance_head, distil, projectors
from remix.methods.generated import Generated
from remix.methods.plain import first_task
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
        generator: training of the generator, new in every task.

    """

    first: Sgd = Sgd(160, 0.1, (80, 120))
    later: Sgd = Sgd(160, 0.1, (80, 120))
    balance: Sgd = Sgd(40, 0.005)
    scales: LossScales = LossScales(local=0.5, head=0.0)
    generator: GeneratorSettings = GeneratorSettings()

    def stages(self, learner: Learner) -> list[Stage]:
        """Everything at once, then the head alone."""
        if learner.teacher is None:
            return first_task(learner, self.first)
        scales = self.scales.for_task(learner.new_classes, learner.old_classes)
        return [
            Stage("train", [learner.student, projectors(learner)], self.later, distil(learner, scales)),
            balance_head(learner, self.balance, self.scales.local, scales.hard),
        ]
