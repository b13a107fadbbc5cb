"""Where the items of a batch come from besides images: pseudo-samples, and maps above frozen blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from remix.data import Augment, ImageDataset, Normalisation, batches
from remix.inversion import GeneratorSource
from remix.networks import Backbone, Classifier, Items
from remix.networks.probe import evaluating

__all__ = ["FrozenMaps", "GeneratorReplay", "Replay", "Replayed", "TensorReplay"]


_LARGE = 3 * 64 * 64  # numbers of a pseudo-sample: fewer of larger ones go through a network at once


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
        replacement: whether they are drawn with replacement instead.

    """

    def __init__(
        self, images: Tensor, labels: Tensor, logits: Tensor, start: int = 0, replacement: bool = False
    ) -> None:
        if not len(images) == len(labels) == len(logits) > 0:
            raise ValueError(f"a replay buffer needs samples, got {len(images)}, {len(labels)} and {len(logits)}")
        self.images, self.labels, self.logits, self.start = images.half(), labels, logits, start
        self.replacement = replacement
        self._order = torch.arange(len(labels))
        self._next = 0

    @classmethod
    def of(
        cls, items: Items, labels: Tensor, teacher: Classifier, batch: int = 500, replacement: bool = False
    ) -> TensorReplay:
        """With the teacher's logits of the pseudo-samples as they are held."""
        images = items.x.half()
        batch = max(1, min(batch, batch * _LARGE // images[0].numel()))
        with torch.no_grad(), evaluating(teacher):
            logits = torch.cat([teacher(part.to(torch.float32), items.start) for part in images.split(batch)])
        return cls(images, labels, logits, items.start, replacement)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> TensorReplay:
        return TensorReplay(self.images[part], self.labels[part], self.logits[part], self.start, self.replacement)

    def start_epoch(self, generator: torch.Generator) -> None:
        """A new random order."""
        self._order = torch.randperm(len(self), generator=generator, device=generator.device)
        self._next = 0

    def draw(self, count: int, generator: torch.Generator) -> Replayed:
        """The next ones of the order, which begins again when it is through."""
        if self.replacement:
            rows = torch.randint(len(self), (count,), generator=generator, device=generator.device)
            rows = rows.to(self.labels.device)
            return Replayed(self._items(self.images[rows]), self.labels[rows], self.logits[rows])
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


class _Kept(NamedTuple):
    """The maps of one data set, for as long as that exists."""

    data: ReferenceType[ImageDataset]
    maps: Tensor


class FrozenMaps:
    """What the frozen first blocks of a network make of every image, computed once for a few versions of it.

    Since they do not change, an image gives the same maps in every epoch. They are computed for the image as it is and
    for ``versions - 1`` augmented versions, held in half precision, and an epoch draws one version per image. Data
    whose maps would take more than ``limit`` bytes go through the blocks in every epoch instead. Maps are kept as long
    as somebody else keeps their images.

    Args:
        backbone: the network.
        start: its first block that learns.
        versions: of every image, the plain one included.
        limit: bytes of maps to hold for one data set.

    Raises:
        ValueError: for less than one view, or no block on either side.

    """

    def __init__(self, backbone: Backbone, start: int, versions: int = 4, limit: int = 2**30) -> None:
        if versions < 1:
            raise ValueError(f"an image has at least one version, got versions={versions}")
        count = len(backbone.blocks())
        if not 1 <= start < count:
            raise ValueError(f"1 to {count - 1} of the {count} blocks can be frozen, got {start}")
        self.backbone, self.start, self.versions, self.limit = backbone, start, versions, limit
        self._plain: dict[int, _Kept] = {}
        self._augmented: dict[int, _Kept] = {}

    def batches(
        self,
        data: ImageDataset,
        size: int,
        generator: torch.Generator | None,
        normalisation: Normalisation,
        augment: Augment | None,
        device: torch.device,
    ) -> Iterator[tuple[Items, Tensor]]:
        """One pass over a data set as `remix.data.batches` makes it, but of maps."""
        plain = self._maps(data, size, None, normalisation, None, device)
        if plain is None:
            for images, labels in batches(data, size, generator, normalisation, augment, device):
                yield Items(self._through(images), self.start), labels
            return
        versions = [plain]
        if generator is not None and augment is not None and self.versions > 1:
            more = self._maps(data, size, generator, normalisation, augment, device)
            assert more is not None
            versions = [plain, *more]
        labels = data.labels.to(device)
        order = torch.arange(len(data))
        if generator is not None:
            order = torch.randperm(len(data), generator=generator, device=generator.device).cpu()
        for rows in order.split(size):
            if generator is None or len(versions) == 1:
                maps = plain[rows.to(plain.device)]
            else:
                chosen = torch.randint(
                    len(versions), (len(rows),), generator=generator, device=generator.device
                ).tolist()
                maps = torch.stack([versions[version][row] for version, row in zip(chosen, rows.tolist(), strict=True)])
            yield Items(maps.float(), self.start), labels[rows.to(labels.device)]

    def _through(self, images: Tensor) -> Tensor:
        with evaluating(self.backbone):
            return self.backbone.features(images, stop=self.start)

    def _maps(
        self,
        data: ImageDataset,
        size: int,
        generator: torch.Generator | None,
        normalisation: Normalisation,
        augment: Augment | None,
        device: torch.device,
    ) -> Tensor | None:
        """Maps of the plain images (N, ...), or with a generator those of further versions (versions - 1, N, ...)."""
        known = self._plain if generator is None else self._augmented
        if id(data) in known and known[id(data)].data() is data:
            return known[id(data)].maps
        passes = 1 if generator is None else self.versions - 1
        found: Tensor | None = None
        for number in range(passes):
            first = 0
            for images, _ in batches(data, size, None, normalisation, None, device):
                seen = images if augment is None or generator is None else augment(images, generator)
                maps = self._through(seen)
                if found is None:
                    if self.versions * len(data) * maps[0].numel() * 2 > self.limit:
                        return None
                    found = maps.new_empty(passes, len(data), *maps.shape[1:], dtype=torch.float16)
                found[number, first : first + len(maps)] = maps
                first += len(maps)
        assert found is not None, "a data set has images"
        place = id(data)
        known[place] = _Kept(ref(data, lambda _: known.pop(place, None)), found[0] if generator is None else found)
        return known[place].maps
