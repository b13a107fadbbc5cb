"""Where pseudo-samples come from while a later task is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from remix.inversion import GeneratorSource
from remix.networks import Classifier
from remix.networks.probe import evaluating

__all__ = ["GeneratorReplay", "Replay", "Replayed", "TensorReplay"]


class Replayed(NamedTuple):
    """Pseudo-samples: images (N, C, H, W) as the network receives them, labels (N,), the old model's logits (N, K)."""

    images: Tensor
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

    def preview(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` images and their labels, to look at."""
        ...


class TensorReplay:
    """A buffer of pseudo-samples, gone through in a new random order every epoch.

    Images are held in half precision, which their noise is far above: half the memory, half the checkpoint.

    Args:
        images: (N, C, H, W).
        labels: (N,).
        logits: of the old model, (N, K).

    """

    def __init__(self, images: Tensor, labels: Tensor, logits: Tensor) -> None:
        if not len(images) == len(labels) == len(logits) > 0:
            raise ValueError(f"a replay buffer needs samples, got {len(images)}, {len(labels)} and {len(logits)}")
        self.images, self.labels, self.logits = images.half(), labels, logits
        self._order = torch.arange(len(labels))
        self._next = 0

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, teacher: Classifier, batch: int = 500) -> TensorReplay:
        """With the teacher's logits of the images as they are held."""
        images = images.half()
        with torch.no_grad(), evaluating(teacher):
            logits = torch.cat([teacher(part.to(torch.float32)) for part in images.split(batch)])
        return cls(images, labels, logits)

    def __len__(self) -> int:
        return len(self.labels)

    def start_epoch(self, generator: torch.Generator) -> None:
        """A new random order."""
        self._order = torch.randperm(len(self), generator=generator, device=generator.device)
        self._next = 0

    def draw(self, count: int, generator: torch.Generator) -> Replayed:
        """The next ones of the order, which begins again when it is through."""
        places = torch.arange(self._next, self._next + count) % len(self)
        self._next = (self._next + count) % len(self)
        rows = self._order.to("cpu")[places].to(self.labels.device)
        return Replayed(self.images[rows].to(self.logits.dtype), self.labels[rows], self.logits[rows])

    def preview(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The first ones."""
        return self.images[:count].float(), self.labels[:count]

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in order: images and labels."""
        for first in range(0, len(self), size):
            part = slice(first, first + size)
            yield self.images[part].to(self.logits.dtype), self.labels[part]

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
        return Replayed(images, logits.argmax(1), logits)

    def preview(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """New images."""
        return self.source.sample(count, generator)
