"""LDC, learnable drift compensation (Gomez-Villa et al., 2024): LwF, and prototypes moved by a learned matrix."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.feature_losses import feature_distillation
from remix.learning.feature_maps import seeded_linear
from remix.learning.losses import local_cross_entropy, soft_distillation
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.drifted import learn_map
from remix.methods.prototypes import refuse_extending, remember_prototypes
from remix.methods.registry import method
from remix.methods.solved_heads import last_block
from remix.networks import CosineHead, ExactLinearHead
from remix.statistics import class_gaussians

__all__ = ["ANSWERS", "Ldc"]

ANSWERS, BEFORE, MATRIX = "answers", "answers before", "matrix"
"""Names among the engine's modules: the head that is trained, as it was before the task, and the drift."""


@method("ldc")
@dataclass(frozen=True)
class Ldc(Method):
    """LDC: Learning without Forgetting; the mean feature of every class follows by a learned matrix, the nearest wins.

    Args:
        first: training of the first task.
        later: training of every later task.
        drift: training of the matrix from old to new features, the network frozen.
        distillation: weight of the old model's answers.
        temperature: that softens them.

    """

    by_steps: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = (ANSWERS,)
    first: Training = Training(200, 0.1, (60, 120, 160))
    later: Training = Training(100, 0.05, (45, 90), weight_decay=2e-4)
    drift: Training = Training(20, 1e-3, weight_decay=0.0, optimiser="adam")
    distillation: float = 10.0
    temperature: float = 2.0

    def begin(self, engine: Engine) -> None:
        """The head that is trained grows; what it was stays to be asked."""
        if engine.teacher is None:
            _head(engine, ANSWERS, engine.student.head.task_sizes)
            return
        sizes = engine.student.head.task_sizes
        answers = _head(engine, ANSWERS, sizes[:-1])
        engine.module(BEFORE, lambda: copy.deepcopy(answers))
        answers.grow([""] * sizes[-1], generator=engine.generator)

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once; then the matrix."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._train)]
        return [Stage("train", self.later, self._train), Stage("drift", self.drift, self._drift)]

    def _train(self, engine: Engine) -> Work:
        teacher, old, sizes = engine.teacher, engine.old_classes, engine.student.head.task_sizes
        head = _head(engine, ANSWERS, sizes)
        before = None if teacher is None else _head(engine, BEFORE, sizes[:-1])

        def losses(batch: Batch) -> dict[str, Tensor]:
            logits = head(engine.pooled(batch.real))
            found = {"local": local_cross_entropy(logits, batch.labels, old)}
            if teacher is not None and before is not None:
                with torch.no_grad():
                    answers = before(teacher.backbone.pooled(*batch.real).float())
                kept = soft_distillation(logits[:, :old], answers, self.temperature)
                found["distillation"] = self.distillation * kept
            return found

        return Work([*engine.learning(), head], losses)

    def _drift(self, engine: Engine) -> Work:
        return learn_map(engine, _matrix(engine), lambda found, after: {"drift": feature_distillation(found, after)})

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Move the means of the old classes, measure those of the new ones: directions to them are the head."""
        known = engine.memory.gaussians
        if known is not None:
            # In double precision: that of a few rows depends on where they lie in memory in its last bit.
            moved = known.mean.double() @ _matrix(engine).weight.detach().double().T
            engine.memory.gaussians = replace(known, mean=moved.to(known.mean))
        remember_prototypes(engine, data)
        assert engine.memory.gaussians is not None
        engine.student.head = self._nearest(engine, engine.memory.gaussians.mean)

    def refitted(self, engine: Engine, features: Tensor, labels: Tensor) -> ExactLinearHead:
        """The same head from the means of real features."""
        return self._nearest(engine, class_gaussians(features, labels).mean)

    def _nearest(self, engine: Engine, means: Tensor) -> ExactLinearHead:
        """The nearest of unit vectors is the one with the largest cosine."""
        directions = normalize(means)
        map, sizes = last_block(engine.backbone, unit=True), engine.student.head.task_sizes
        return ExactLinearHead(map, sizes, directions, directions.new_zeros(len(directions))).to(engine.team.device)


def _head(engine: Engine, name: str, task_sizes: tuple[int, ...]) -> CosineHead:
    """A head of cosines; of so many classes per task where it is made, or made again from what was saved."""
    dim = engine.backbone.feature_dim
    return engine.module(name, lambda: CosineHead(dim, task_sizes, generator=engine.generator))


def _matrix(engine: Engine) -> nn.Linear:
    dim = engine.backbone.feature_dim
    return engine.module(MATRIX, lambda: seeded_linear(dim, dim, engine.generator, bias=False))
