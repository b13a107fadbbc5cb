"""Images as the learning part of a network receives them: through first blocks that never change again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from remix.data import Augment, ImageDataset, Normalisation, batches
from remix.networks import Backbone, Items
from remix.networks.probe import evaluating

__all__ = ["FrozenMaps"]


class _Kept(NamedTuple):
    """The maps of one data set, for as long as that exists."""

    data: ReferenceType[ImageDataset]
    maps: Tensor


class FrozenMaps:
    """What the frozen first blocks of a network make of every image, computed once for a few views of it.

    Since they do not change, an image gives the same maps in every epoch. They are computed for the image as it is and
    for ``views - 1`` augmented views, held in half precision, and an epoch draws one view per image. Data whose maps
    would take more than ``limit`` bytes go through the blocks in every epoch instead. Maps are kept as long as
    somebody else keeps their images.

    Args:
        backbone: the network.
        start: its first block that learns.
        views: of every image, the plain one included.
        limit: bytes of maps to hold for one data set.

    Raises:
        ValueError: for less than one view, or no block on either side.

    """

    def __init__(self, backbone: Backbone, start: int, views: int = 4, limit: int = 2**30) -> None:
        if views < 1:
            raise ValueError(f"an image has at least one view, got views={views}")
        count = len(backbone.blocks())
        if not 1 <= start < count:
            raise ValueError(f"1 to {count - 1} of the {count} blocks can be frozen, got {start}")
        self.backbone, self.start, self.views, self.limit = backbone, start, views, limit
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
        views = [plain]
        if generator is not None and augment is not None and self.views > 1:
            more = self._maps(data, size, generator, normalisation, augment, device)
            assert more is not None
            views = [plain, *more]
        labels = data.labels.to(device)
        order = torch.arange(len(data))
        if generator is not None:
            order = torch.randperm(len(data), generator=generator, device=generator.device).cpu()
        for rows in order.split(size):
            if generator is None or len(views) == 1:
                maps = plain[rows.to(plain.device)]
            else:
                chosen = torch.randint(len(views), (len(rows),), generator=generator, device=generator.device).tolist()
                maps = torch.stack([views[view][row] for view, row in zip(chosen, rows.tolist(), strict=True)])
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
        """Maps of the plain images (N, ...), or with a generator those of further views (views - 1, N, ...)."""
        known = self._plain if generator is None else self._augmented
        if id(data) in known and known[id(data)].data() is data:
            return known[id(data)].maps
        passes = 1 if generator is None else self.views - 1
        found: Tensor | None = None
        for number in range(passes):
            first = 0
            for images, _ in batches(data, size, None, normalisation, None, device):
                seen = images if augment is None or generator is None else augment(images, generator)
                maps = self._through(seen)
                if found is None:
                    if self.views * len(data) * maps[0].numel() * 2 > self.limit:
                        return None
                    found = maps.new_empty(passes, len(data), *maps.shape[1:], dtype=torch.float16)
                found[number, first : first + len(maps)] = maps
                first += len(maps)
        assert found is not None, "a data set has images"
        place = id(data)
        known[place] = _Kept(ref(data, lambda _: known.pop(place, None)), found[0] if generator is None else found)
        return known[place].maps
