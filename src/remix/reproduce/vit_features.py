"""Pooled tokens after every block of a vision transformer of the `transformers` library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.data import Preprocessing
from remix.support.documents import read_json

__all__ = ["Vit", "open_vit"]


class Vit:
    """A transformer and how images are prepared for it.

    Attributes:
        blocks: how many it has.
        preprocessing: size and normalisation of its images.

    """

    def __init__(self, model: Any, preprocessing: Preprocessing, patches: int) -> None:
        self._model, self._patches = model, patches
        self.preprocessing = preprocessing
        self.blocks = int(model.config.num_hidden_layers)

    @torch.no_grad()
    def pooled(self, batches: Iterator[Tensor]) -> Iterator[dict[str, Tensor]]:
        """For batches of images the mean over patch tokens after every block, (n, D) by ``"block 0"`` and so on."""
        for images in batches:
            states = self._model(pixel_values=images, output_hidden_states=True).hidden_states[1:]
            yield {f"block {i}": state[:, -self._patches :].mean(1) for i, state in enumerate(states)}


def open_vit(path: str | Path) -> Vit:
    """Read a `transformers` folder (config.json, model.safetensors, usually preprocessor_config.json).

    Raises:
        ValueError: if `transformers` is not installed, or the folder holds no vision transformer.
        FileNotFoundError: if there is no such folder.

    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} is no transformers folder: it has no config.json")
    try:
        from transformers import AutoModel
    except ImportError as error:
        raise ValueError("--vit needs the transformers library: pip install 'remix-dfcil[vit]'") from error
    try:
        model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
        size, patch = int(model.config.image_size), int(model.config.patch_size)
        prepared = folder / "preprocessor_config.json"
        values = read_json(prepared) if prepared.is_file() else {}
        mean, std = (tuple(values.get(name) or (0.5,) * 3) for name in ("image_mean", "image_std"))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{folder} holds no vision transformer that can be read: {error}") from error
    return Vit(model, Preprocessing(size, 3, mean, std), (size // patch) ** 2)
