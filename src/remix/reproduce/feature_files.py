"""Features of many images in files: written batch by batch, read as memory maps; they need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remix.data import ImageDataset, Preprocessing
from remix.networks.probe import evaluating
from remix.statistics import Hooks

__all__ = ["Features", "image_batches", "map_features", "read_features", "write_features"]

Features = NDArray[Any]


def image_batches(data: ImageDataset, preprocessing: Preprocessing, size: int) -> Iterator[Tensor]:
    """Images as a network takes them, (n, C, H, W) float32."""
    for rows in torch.arange(len(data)).split(size):
        images, _ = data.batch(rows)
        yield preprocessing.normalisation.normalise(images, torch.float32)


@torch.no_grad()
def map_features(
    network: nn.Module, batches: Iterator[Tensor], points: Mapping[str, str]
) -> Iterator[dict[str, Tensor]]:
    """Activations (n, C, H, W) at points such as ``"layer1.2:output"``, by the names given to them, batch by batch."""
    with evaluating(network):
        for images in batches:
            with Hooks(network, points.values()) as hooks:
                network(images)
            yield {name: hooks[point] for name, point in points.items()}


def write_features(
    folder: Path, rows: int, batches: Iterator[Mapping[str, Tensor]], progress: Callable[[int, int], None]
) -> None:
    """Write what comes in batches as one float16 file NAME.npy per name, and the shape of a row beside it.

    A file is complete when its name does not end in ``.unfinished``: what is complete stays, so a killed run can see
    what it has. float16 keeps three digits, which is more than the noise of any statistic of features.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, tuple[Path, np.memmap[Any, Any]]] = {}
    seen = 0
    for batch in batches:
        for name, activation in batch.items():
            if name not in files:
                path = folder / f"{name}.unfinished"
                shape = (rows, *activation.shape[1:])
                files[name] = (path, np.lib.format.open_memmap(path, "w+", np.float16, shape))
            values = activation.detach().half()
            if not bool(torch.isfinite(values).all()):
                raise ValueError(f"features {name!r} are not finite, or beyond 65504")
            files[name][1][seen : seen + len(values)] = values.numpy()
        seen += len(next(iter(batch.values())))
        progress(seen, rows)
    for name, (path, written) in files.items():
        written.flush()
        path.rename(folder / f"{name}.npy")


def read_features(folder: Path, name: str) -> tuple[Features, tuple[int, ...]]:
    """The features of a name as a memory-mapped (N, D) array, and the shape of a row before it was flattened.

    Raises:
        FileNotFoundError: if they were not written, or not completely.
    """
    path = folder / f"{name}.npy"
    if not path.exists():
        raise FileNotFoundError(f"there are no features {path}")
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.reshape(len(array), -1), tuple(array.shape[1:])
