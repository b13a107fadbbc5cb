"""Images as the learning part of a network receives them: through lower blocks that never change again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from remix.data import Augment, ImageDataset, Normalisation, batches

__all__ = ["FrozenTrunk"]


class FrozenTrunk:
    """A frozen trunk, and what it makes of every image, computed once for a few views of it.

    Since the trunk does not change, an image gives the same maps in every epoch. They are computed for the image as
    it is and for ``views - 1`` augmented views, held in half precision, and an epoch draws one view per image. Data
    whose maps would take more than ``limit`` bytes go through the trunk in every epoch instead.

    Args:
        network: from images (N, C, H, W) to maps (N, c, h, w); see `remix.networks.cut`.
        views: of every image, the plain one included.
        limit: bytes of maps to hold for one data set.

    Raises:
        ValueError: for less than one view.

    """

    def __init__(self, network: nn.Module, views: int = 4, limit: int = 2**30) -> None:
        if views < 1:
            raise ValueError(f"an image has at least one view, got views={views}")
        self.network, self.views, self.limit = network, views, limit
        self._plain: dict[int, tuple[ImageDataset, Tensor]] = {}  # the data are held too, so that ids stay theirs
        self._augmented: dict[int, tuple[ImageDataset, Tensor]] = {}

    def batches(
        self,
        data: ImageDataset,
        size: int,
        generator: torch.Generator | None,
        normalisation: Normalisation,
        augment: Augment | None,
        device: torch.device,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over a data set as `remix.data.batches` makes it, but of maps."""
        plain = self._maps(data, size, None, normalisation, None, device)
        if plain is None:
            for images, labels in batches(data, size, generator, normalisation, augment, device):
                yield self.network(images), labels
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
            yield maps.float(), labels[rows.to(labels.device)]

    def _maps(
        self,
        data: ImageDataset,
        size: int,
        generator: torch.Generator | None,
        normalisation: Normalisation,
        augment: Augment | None,
        device: torch.device,
    ) -> Tensor | None:
        """Maps of the plain images (N, c, h, w), or with a generator those of further views (views - 1, N, c, h, w)."""
        known = self._plain if generator is None else self._augmented
        if id(data) in known:
            return known[id(data)][1]
        passes = 1 if generator is None else self.views - 1
        found: Tensor | None = None
        for number in range(passes):
            first = 0
            for images, _ in batches(data, size, None, normalisation, None, device):
                seen = images if augment is None or generator is None else augment(images, generator)
                maps = self.network(seen)
                if found is None:
                    if self.views * len(data) * maps[0].numel() * 2 > self.limit:
                        return None
                    found = maps.new_empty(passes, len(data), *maps.shape[1:], dtype=torch.float16)
                found[number, first : first + len(maps)] = maps
                first += len(maps)
        assert found is not None, "a data set has images"
        known[id(data)] = (data, found[0] if generator is None else found)
        return known[id(data)][1]
