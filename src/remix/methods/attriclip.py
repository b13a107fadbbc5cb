"""AttriCLIP: prompts for texts, chosen by the image."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.registry import method
from remix.networks.attribute_head import AttributeHead

__all__ = ["AttriClip"]


@method("attriclip")
@dataclass(frozen=True)
class AttriClip(Method):
    """Both towers stay; prompts for the texts of classes learn, of which every image chooses three by their keys.

    Texts are read anew for every image and class, so it is slow.

    Args:
        training: of every task; published is a rate of 0.001 for every 20 images of a batch, of 16.
        keys: weight of the distance between an image and the keys it chose.
        apart: weight of the cosines between texts of different prompts.

    """

    transformers: ClassVar[bool] = True
    by_steps: ClassVar[bool] = False

    training: Training = Training(10, 8e-4, weight_decay=0.0, schedule="cosine")
    keys: float = 0.7
    apart: float = 0.3

    @property
    def trains(self) -> bool:
        """No: prompts are the head's."""
        return False

    def head_kind(self, asked: str) -> str:
        """Its own, in the place of a text head."""
        if asked not in ("text", AttributeHead.kind):
            raise ValueError(f"the method {self.name} knows classes by their names: set network.head=text")
        return AttributeHead.kind

    def adapter_kind(self, asked: str | None) -> str | None:
        """None: the image tower stays as it is."""
        return None

    def stages(self, step: Step) -> list[Stage]:
        """One."""
        return [Stage("prompts", self.training, self._start)]

    def _start(self, engine: Engine) -> Work:
        head, old = engine.student.head, engine.old_classes
        assert isinstance(head, AttributeHead)
        first = old if engine.new_classes > 1 else 0  # one class is certain among itself

        def losses(batch: Batch) -> dict[str, Tensor]:
            with torch.no_grad():
                features = engine.pooled(batch.real)
            texts = head.prompted()
            others = (texts @ texts.T).abs().sum() - len(texts)
            return {
                "local": cross_entropy(head.logits(features, first), batch.labels - first),
                "keys": self.keys * (1 - head.attributes.chosen(features)[1]).mean(),
                "apart": self.apart * others / (len(texts) * (len(texts) - 1)),
            }

        return Work([head.newest()], losses)
