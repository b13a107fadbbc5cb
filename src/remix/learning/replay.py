"""Where pseudo-samples come from while a later task is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from remix.inversion import GeneratorSource
from remix.networks import Classifier, Items
from remix.networks.probe import evaluating

__all__ = ["GeneratorReplay", "Replay", "Replayed", "TensorReplay"]


class Replayed(NamedTuple):
    """Pseudo-samples as the network receives them, their labels (N,), the old model's logits (N, K)."""

    items: Items
    labels: Tensor
    logits: Tensor


class Replay(Protocol):
    """A source of pseudo-samples of the old classes."""

    def start_epoch(self, generator: torch.Generator) -> None:
        """Called before every epoch."""
        ...

    def draw(self, count: int, generator: torch.Generator) -> Replayed:
        """The next ``count`` pseudo-samples."""
        ...

    def preview(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """``count`` images and their labels, to look at; None where pseudo-samples are no images."""
        ...


class TensorReplay:
    """A buffer of pseudo-samples, gone through in a new random order every epoch.

    They are held in half precision, which their noise is far above: half the memory, half the checkpoint.

    Args:
        images: (N, C, H, W), or inputs (N, ...) of block ``start``.
        labels: (N,).
        logits: of the old model, (N, K).
        start: the block that receives them.

    """

    def __init__(self, images: Tensor, labels: Tensor, logits: Tensor, start: int = 0) -> None:
        if not len(images) == len(labels) == len(logits) > 0:
            raise ValueError(f"a replay buffer needs samples, got {len(images)}, {len(labels)} and {len(logits)}")
        self.images, self.labels, self.logits, self.start = images.half(), labels, logits, start
        self._order = torch.arange(len(labels))
        self._next = 0

    @classmethod
    def of(cls, items: Items, labels: Tensor, teacher: Classifier, batch: int = 500) -> TensorReplay:
        """With the teacher's logits of the pseudo-samples as they are held."""
        images = items.x.half()
        with torch.no_grad(), evaluating(teacher):
            logits = torch.cat([teacher(part.to(torch.float32), items.start) for part in images.split(batch)])
        return cls(images, labels, logits, items.start)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> TensorReplay:
        return TensorReplay(self.images[part], self.labels[part], self.logits[part], self.start)

    def start_epoch(self, generator: torch.Generator) -> None:
        """A new random order."""
        self._order = torch.randperm(len(self), generator=generator, device=generator.device)
        self._next = 0

    def draw(self, count: int, generator: torch.Generator) -> Replayed:
        """The next ones of the order, which begins again when it is through."""
        places = torch.arange(self._next, self._next + count) % len(self)
        self._next = (self._next + count) % len(self)
        rows = self._order.to("cpu")[places].to(self.labels.device)
        return Replayed(self._items(self.images[rows]), self.labels[rows], self.logits[rows])

    def _items(self, images: Tensor) -> Items:
        return Items(images.to(self.logits.dtype), self.start)

    def preview(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """The first ones."""
        return None if self.start else (self.images[:count].float(), self.labels[:count])

    def batches(self, size: int) -> Iterator[tuple[Items, Tensor]]:
        """All samples once, in order, with their labels."""
        for first in range(0, len(self), size):
            part = slice(first, first + size)
            yield self._items(self.images[part]), self.labels[part]

    def tensors(self) -> dict[str, Tensor]:
        """What to save."""
        return {"images": self.images, "labels": self.labels, "logits": self.logits}


class GeneratorReplay:
    """A trained generator network: every draw is new."""

    def __init__(self, source: GeneratorSource, teacher: Classifier) -> None:
        self.source, self.teacher = source, teacher

    def start_epoch(self, generator: torch.Generator) -> None:
        """Nothing to do."""

    def draw(self, count: int, generator: torch.Generator) -> Replayed:
        """New images; the old model gives labels and logits."""
        images = self.source.images(count, generator)
        with torch.no_grad(), evaluating(self.teacher):
            logits = self.teacher(images)
        return Replayed(Items(images), logits.argmax(1), logits)

    def preview(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """New images."""
        return self.source.sample(count, generator)
