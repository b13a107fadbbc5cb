"""One pass over a data set, batch by batch, ready for a network: normalised, cropped and flipped on its device."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from remix.data.errors import DataError
from remix.data.images import ImageDataset
from remix.data.preprocessing import Normalisation

__all__ = ["Augment", "batches"]


@dataclass(frozen=True)
class Augment:
    """Each image is cropped at random out of itself with a border of zeros, and mirrored with probability 1/2.

    It is applied after normalisation, so that the border is the mean colour.

    Attributes:
        crop_padding: width of the border in pixels; 0 means no crop.
        flip: whether images are mirrored left to right. Not for digits.

    """

    crop_padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise DataError(f"crop_padding must be 0 or more pixels, got {self.crop_padding}")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A random view of each image, (B, C, H, W) to the same shape.

        Draws the same numbers whatever the images are, from ``generator`` (of any device).
        """
        count, channels, height, width = images.shape
        source, device = generator.device, images.device
        border = self.crop_padding
        shifts = torch.randint(0, 2 * border + 1, (2, count, 1), generator=generator, device=source).to(device)
        mirrored = torch.rand(count, 1, generator=generator, device=source).to(device) < 0.5
        if not border and not self.flip:
            return images
        columns = torch.arange(width, device=device)
        if self.flip:
            columns = torch.where(mirrored, columns.flip(0), columns)
        rows = torch.arange(height, device=device) + shifts[0]
        pixels = (rows * (width + 2 * border)).unsqueeze(2) + (columns + shifts[1]).unsqueeze(1)
        bordered = pad(images, (border,) * 4).flatten(2)
        return bordered.gather(2, pixels.view(count, 1, -1).expand(-1, channels, -1)).view_as(images)


def batches(
    dataset: ImageDataset,
    size: int,
    generator: torch.Generator | None,
    normalisation: Normalisation,
    augment: Augment | None = None,
    device: torch.device | str | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate once over all images: normalised floats (B, C, H, W) and labels (B,). The last batch may be shorter.

    The same state of the generator gives the same batches; files are decoded ahead by threads, which changes nothing.

    Args:
        dataset: images and labels.
        size: images per batch.
        generator: draws the order and the augmentation; None means in order and not augmented, as for evaluation.
        normalisation: of the data set.
        augment: random crops and flips, after normalisation.
        device: where the batches go; that of the data set's labels if not given.

    Raises:
        DataError: if size is not positive, or images are to be augmented without a generator.

    """
    if size < 1:
        raise DataError(f"a batch needs at least one image, got size={size}")
    if augment is not None and generator is None:
        raise DataError("augmentation needs a generator: batches(..., generator=torch.Generator().manual_seed(0))")

    def iterate() -> Iterator[tuple[Tensor, Tensor]]:
        target = dataset.labels.device if device is None else torch.device(device)
        if generator is None:
            order = torch.arange(len(dataset))
        else:
            order = torch.randperm(len(dataset), generator=generator, device=generator.device)
        chunks = order.to(dataset.labels.device).split(size) if len(dataset) else ()
        found = (dataset.batch(chunk) for chunk in chunks) if dataset.in_memory else _decoded_ahead(dataset, chunks)
        for images, labels in found:
            x = normalisation.normalise(images.to(target))
            if augment is not None and generator is not None:
                x = augment(x, generator)
            yield x, labels.to(target)

    return iterate()


def _decoded_ahead(dataset: ImageDataset, chunks: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of files in order, decoded by one thread per processor while the caller works on earlier ones."""
    workers = os.cpu_count() or 1
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[tuple[Tensor, Tensor]]] = deque()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(dataset.batch, chunk))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also when the caller stops half way
        pool.shutdown(wait=True, cancel_futures=True)
