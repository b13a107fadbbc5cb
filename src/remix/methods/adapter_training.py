"""Parts that methods on transformers share: what is plugged in learns the classes of a task among themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.learning.engine import Engine
from remix.learning.losses import local_cross_entropy
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.networks import Backbone, Items, TextHead

__all__ = ["ADAPTERS", "LocalAdapters", "learning_adapters", "local_loss"]

ADAPTERS = Training(3, 1e-3, weight_decay=0.0, optimiser="adamw", schedule="quarter-cosine", warm_up=30)
"""Training of the adapters of CLIP on a task of CIFAR-100, as published; batches of 64."""


def local_loss(engine: Engine, items: Items, labels: Tensor) -> Tensor:
    """Cross-entropy of real images among the classes of the present task; of a text head, among their texts alone."""
    head, old = engine.student.head, engine.old_classes
    features = engine.pooled(items)
    if isinstance(head, TextHead) and engine.new_classes > 1:
        return cross_entropy(head.scores(features, head.vectors(old)), labels - old)
    return local_cross_entropy(head(features), labels, old)


def learning_adapters(engine: Engine) -> Work:
    """What is plugged into the network, and the newest part of the head, by the local cross-entropy."""

    def losses(batch: Batch) -> dict[str, Tensor]:
        return {"local": local_loss(engine, batch.real, batch.labels)}

    return Work([*engine.learning(), engine.student.head.newest()], losses)


@dataclass(frozen=True)
class LocalAdapters(Method):
    """A method that lets adapters of a kind learn a task and does nothing else about the old ones.

    Args:
        training: of every task.

    """

    transformers: ClassVar[bool] = True
    by_steps: ClassVar[bool] = False
    plug_ins: ClassVar[tuple[str, ...]] = ()
    """Adapters that it can learn with; the first if another is there."""

    training: Training = ADAPTERS

    def adapter_kind(self, asked: str | None) -> str | None:
        """One of its own."""
        return asked if asked in self.plug_ins else self.plug_ins[0]

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """There is something to learn."""
        if getattr(backbone, "adapter", None) not in self.plug_ins:
            raise ValueError(
                f"the method {self.name} learns {self.plug_ins[0]} in a transformer, and this network has none: begin "
                "with network.backbone=hf:PATH"
            )

    def stages(self, step: Step) -> list[Stage]:
        """One."""
        return [Stage("adapters", self.training, learning_adapters)]
