"""DCMI: dual-consistency model inversion with prototypical routing (Qiu et al., 2024)."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from remix.data import ImageDataset
from remix.inversion import ConditionalGenerator, Critic, doublings_to, gradient_penalty, random_labels
from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.plain import everything
from remix.methods.prototypes import refuse_extending
from remix.methods.registry import method
from remix.methods.rotations import ROTATIONS, check_rotations, rotated
from remix.networks import Backbone, Classifier, Items, LinearHead, RoutedHead
from remix.statistics import measure_classes

__all__ = ["CRITIC", "GENERATOR", "TURNED", "Dcmi", "answer_distance", "mixtures", "prototype_logits"]

CRITIC, GENERATOR, TURNED = "critic", "generator", "turned head"
"""Names of modules of the engine: the last tells the classes of turned images in the first task."""

_SHARPNESS = 10.0  # of the softmax over cosines
_PENALTY = 10.0  # weight of the gradient penalty

_PLAIN = Training(100, 1e-3, weight_decay=2e-4, optimiser="adam", schedule="cosine")


@method("dcmi")
@dataclass(frozen=True)
class Dcmi(Method):
    """DCMI: a generator paints mixtures of old classes as if they were new images; prototypes tell the task.

    Args:
        first: training of the first task, of everything.
        image_generator: training of the generator and its critic, both new in every task, on the new images.
        later: training of the last block and the head in later tasks.
        temperature: that divides logits in every cross-entropy.
        critic_steps: batches that the critic is trained on for every one that the generator is.
        width: of generator and critic.
        semantics: weight of how unlike its mixture of classes a painted image is to the old model.
        domain: weight of the critic's judgement of painted images.
        features: weight of how far features of painted images turn away from those of the old model.
        answers: weight of how far the answers of the old classifiers move.

    """

    keeps: ClassVar[str] = "the network, and of every class the mean of its features"
    by_steps: ClassVar[bool] = False
    first: Training = _PLAIN
    image_generator: Training = Training(
        100, 1e-3, weight_decay=0.0, optimiser="adam", schedule="cosine", betas=(0.0, 0.9)
    )
    later: Training = _PLAIN
    temperature: float = 0.1
    critic_steps: int = 5
    width: int = 64
    semantics: float = 10.0
    domain: float = 0.5
    features: float = 10.0
    answers: float = 10.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")
        if self.critic_steps < 1 or self.width < 1:
            raise ValueError(f"critic_steps and width must be at least 1, got {self.critic_steps} and {self.width}")

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images are turned in the first task and painted in later ones."""
        check_rotations(self.name, backbone, start)
        _, height, width = backbone.input_shape
        doublings_to(height, width)  # raises for sizes that cannot be painted
        Critic(backbone.input_shape, 1)  # raises for sizes that it cannot look at

    def head_kind(self, asked: str) -> str:
        """One that finds the task by prototypes."""
        if asked not in (LinearHead.kind, RoutedHead.kind):
            raise ValueError(f"the method dcmi has a head of its own, not {asked!r}: leave network.head out")
        return RoutedHead.kind

    def stages(self, step: Step) -> list[Stage]:
        """Everything in the first task; later generator and critic, then the last block and the head."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._first, ROTATIONS)]
        return [
            Stage("generator and critic", self.image_generator, self._generator),
            Stage("last block and head", self.later, self._later, passes=2),
        ]

    def _first(self, engine: Engine) -> Work:
        """Class and rotation of an image, told together; the logits of images as they are, are the head's."""
        head, classes = _head(engine.student), engine.new_classes
        turned = engine.module(
            TURNED,
            lambda: LinearHead(engine.backbone.feature_dim, [classes] * (ROTATIONS - 1), generator=engine.generator),
        )

        def losses(batch: Batch) -> dict[str, Tensor]:
            features = engine.pooled(Items(rotated(batch.real.x)))
            logits = torch.cat([*head.by_task(features), turned(features)], 1)
            labels = torch.cat([batch.labels + classes * turns for turns in range(ROTATIONS)])
            return {"cross-entropy": cross_entropy(logits / self.temperature, labels)}

        return Work([*everything(engine), turned], losses)

    def _generator(self, engine: Engine) -> Work:
        """The critic learns from every batch, the generator from every ``critic_steps``-th."""
        teacher, generator, shape = engine.teacher, self._painter(engine), engine.backbone.input_shape
        assert teacher is not None
        critic = engine.module(CRITIC, lambda: Critic(shape, self.width, engine.generator))
        prototypes = _head(teacher).prototypes
        shares = mixtures(prototypes)

        def losses(batch: Batch) -> dict[str, Tensor]:
            critic.batches += 1
            both = int(critic.batches) % self.critic_steps == 0
            wanted = shares[_old_labels(engine, len(batch.labels))]
            with torch.set_grad_enabled(both):
                painted = generator.paint(wanted, engine.generator)
            judged = critic(painted.detach()).mean() - critic(batch.real.x).mean()
            penalty = gradient_penalty(critic, batch.real.x, painted, engine.generator)
            found = {"critic": judged, "penalty": _PENALTY * penalty}
            if both:
                seen = prototype_logits(teacher.backbone.pooled(painted).float(), prototypes)
                found["semantics"] = self.semantics * cross_entropy(seen, wanted)
                found["domain"] = -self.domain * critic.fixed(painted).mean()
            return found

        return Work([generator, critic], losses)

    def _later(self, engine: Engine) -> Work:
        """New classes among themselves; features of painted images stay as they were, and old answers to all images."""
        teacher, head, generator = engine.teacher, _head(engine.student), self._painter(engine)
        assert teacher is not None
        old, shares = _head(teacher), mixtures(_head(teacher).prototypes)
        last = len(engine.backbone.blocks()) - 1

        def losses(batch: Batch) -> dict[str, Tensor]:
            new = len(batch.labels)
            with torch.no_grad():
                painted = generator.paint(shares[_old_labels(engine, new)], engine.generator)
                below = engine.backbone.features(torch.cat([batch.real.x, painted]), stop=last)
                before = teacher.backbone.pooled(below, last).float()
                known = old.by_task(before)
            features = engine.pooled(Items(below, last))
            *answers, newest = head.by_task(features)
            turned = 1 - cosine_similarity(features[new:], before[new:])
            local = batch.labels - engine.old_classes
            return {
                "cross-entropy": cross_entropy(newest[:new] / self.temperature, local),
                "features": self.features * turned.mean(),
                "answers": self.answers * answer_distance(answers, known),
            }

        return Work([engine.backbone.blocks()[last].module, head], losses)

    def _painter(self, engine: Engine) -> ConditionalGenerator:
        shape, classes = engine.backbone.input_shape, engine.old_classes
        return engine.module(
            GENERATOR, lambda: ConditionalGenerator(shape, classes, self.width, generator=engine.generator)
        )

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """The prototypes of the new classes, in the head; those of old classes are never measured again."""
        head, found = _head(engine.student), measure_classes(engine.backbone, engine.images(data))
        new = range(engine.old_classes, head.num_classes)
        head.prototypes[new.start :] = found.mean[found.rows(new)].to(head.prototypes)


def prototype_logits(features: Tensor, prototypes: Tensor) -> Tensor:
    """Ten times the cosine of every feature (N, dim) to every prototype (K, dim): (N, K)."""
    return _SHARPNESS * normalize(features) @ normalize(prototypes).T


def mixtures(prototypes: Tensor) -> Tensor:
    """For every class the shares of all classes in it (K, K), the larger the more alike their prototypes are."""
    return prototype_logits(prototypes, prototypes).softmax(1)


def answer_distance(answers: list[Tensor], before: list[Tensor]) -> Tensor:
    """Mean over tasks and images of the length of the difference of logits (N, classes of the task)."""
    lengths = [torch.linalg.vector_norm(now - then, dim=1) for now, then in zip(answers, before, strict=True)]
    return torch.stack(lengths).mean()


def _head(network: Classifier) -> RoutedHead:
    assert isinstance(network.head, RoutedHead)
    return network.head


def _old_labels(engine: Engine, count: int) -> Tensor:
    return random_labels(range(engine.old_classes), count, engine.generator).to(engine.team.device)
