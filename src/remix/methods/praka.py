"""PRAKA: prototype reminiscence and augmented asymmetric knowledge aggregation (Shi and Ye, 2023)."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.plain import everything
from remix.methods.prototypes import class_prototypes, refuse_extending, remember_prototypes
from remix.methods.registry import method
from remix.methods.rotations import ROTATIONS, check_rotations, rotated
from remix.networks import Backbone, Items, LinearHead

__all__ = ["JOINT", "Praka", "aggregation", "beta_half", "mixed_prototypes"]

JOINT = "joint head"
"""Name of the head over classes and rotations among the engine's modules."""

# Of a mixing share above the first number, this part is taken (both are 0.6): a prototype stays the larger part.
_MOST_MIXED = 0.6


@method("praka")
@dataclass(frozen=True)
class Praka(Method):
    """PRAKA: a second head tells rotations too and teaches the first; prototypes mixed with features stand for the old.

    Args:
        first: training of the first task.
        later: training of every later task, of everything as well.
        temperature: that divides logits in every cross-entropy.
        features: weight of the distance of all features of a batch from what the old model gives.
        prototypes: weight of the losses of mixed prototypes of old classes.

    """

    keeps: ClassVar[str] = "the network, its second head, and of every class the mean of its features"
    by_steps: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = (JOINT,)
    first: Training = Training(100, 1e-3, weight_decay=2e-4, optimiser="adam", schedule="cosine", period=32)
    later: Training = Training(100, 1e-3, weight_decay=2e-4, optimiser="adam", schedule="cosine", period=32)
    temperature: float = 0.1
    features: float = 15.0
    prototypes: float = 15.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images are turned, so they must be square, and come to the network as images."""
        check_rotations(self.name, backbone, start)

    def begin(self, engine: Engine) -> None:
        """The joint head grows by four logits per new class."""
        if engine.teacher is not None:
            old, new = engine.teacher.head.task_sizes, engine.student.head.task_sizes[-1]
            _joint(engine, old).grow([""] * ROTATIONS * new, generator=engine.generator)
        else:
            _joint(engine, engine.student.head.task_sizes)

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once."""
        refuse_extending(self.name, step)
        name, training = ("first task", self.first) if step == "first" else ("train", self.later)
        return [Stage(name, training, self._train, ROTATIONS)]

    def _train(self, engine: Engine) -> Work:
        teacher, plain = engine.teacher, engine.student.head
        joint = _joint(engine, plain.task_sizes)
        old = None if teacher is None else class_prototypes(engine)

        def losses(batch: Batch) -> dict[str, Tensor]:
            images = rotated(batch.real.x)
            features = engine.pooled(Items(images))
            found = self._both_heads(joint(features), plain(features[: len(batch.labels)]), batch.labels)
            if teacher is not None and old is not None:
                with torch.no_grad():
                    before = teacher.backbone.pooled(images).float()
                labels = torch.randint(len(old), (len(batch.labels),), generator=engine.generator).to(old.device)
                mixed = mixed_prototypes(old[labels], features.detach(), engine.generator)
                reminded = self._both_heads(joint(mixed), plain(mixed), labels)
                found["features"] = self.features * torch.linalg.vector_norm(features - before)
                found |= {f"old {name}": self.prototypes * term for name, term in reminded.items()}
            return found

        return Work([*everything(engine), joint], losses)

    def _both_heads(self, joint: Tensor, plain: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The three terms; ``joint`` has the rows of every rotation after each other, or those of the first alone."""
        turned = torch.cat([ROTATIONS * labels + turn for turn in range(len(joint) // len(labels))])
        return {
            "joint": cross_entropy(joint / self.temperature, turned),
            "plain": cross_entropy(plain / self.temperature, labels),
            "aggregation": aggregation(joint, plain),
        }

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """The prototypes of the new classes, of images as they are."""
        remember_prototypes(engine, data)


def aggregation(joint: Tensor, plain: Tensor) -> Tensor:
    """KL divergence of the plain head's probabilities from those of the joint head's mean over rotations.

    Args:
        joint: logits (R N, 4 K) of R rotations of N images, one rotation after the other; the logit of class k in
            rotation r is 4 k + r, and only that of the image's own rotation counts. No gradient passes through it.
        plain: logits (N, K) of the images as they are.

    """
    turns = joint.detach().split(len(plain))
    mean = torch.stack([part[:, turn::ROTATIONS] for turn, part in enumerate(turns)]).mean(0)
    return kl_div(plain.log_softmax(1), mean.log_softmax(1), reduction="batchmean", log_target=True)


def mixed_prototypes(prototypes: Tensor, features: Tensor, generator: torch.Generator) -> Tensor:
    """Every prototype (N, dim), moved a part of the way to a random feature of (M, dim), or away from it.

    (1 - s) p + s f or (1 + s) p - s f, with equal chances; s is Beta(1/2, 1/2), and 0.6 s where it is above 0.6.
    """
    count, device = len(prototypes), generator.device
    rows = torch.randint(len(features), (count,), generator=generator, device=device).to(features.device)
    share = beta_half(count, generator).to(prototypes)
    share = torch.where(share > _MOST_MIXED, _MOST_MIXED * share, share)
    away = torch.rand(count, generator=generator, device=device).to(prototypes) < 0.5
    share = torch.where(away, -share, share)[:, None]
    return (1 - share) * prototypes + share * features[rows].to(prototypes)


def beta_half(count: int, generator: torch.Generator) -> Tensor:
    """Draws (count,) from Beta(1/2, 1/2), whose distribution function is the arcsine law: sin^2(pi u / 2)."""
    uniform = torch.rand(count, generator=generator, device=generator.device)
    return (0.5 * math.pi * uniform).sin().square()


def _joint(engine: Engine, task_sizes: Sequence[int]) -> LinearHead:
    """The joint head; of so many classes per task where it is made, or made again from what was saved."""
    sizes = [ROTATIONS * size for size in task_sizes]
    return engine.module(JOINT, lambda: LinearHead(engine.backbone.feature_dim, sizes, generator=engine.generator))
