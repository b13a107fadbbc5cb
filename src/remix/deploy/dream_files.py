"""The files of a dream, all named from one: the grid, the tensors, the plot of the terms, the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from remix.inversion import Checkpoint
from remix.statistics import DamagedFileError, read_file, write_file

__all__ = ["DreamFiles", "SavedDream", "load_dream"]

_KIND, _VERSION = "dream", 1
_CHECKPOINT_KIND, _CHECKPOINT_VERSION = "dream-checkpoint", 1


@dataclass(frozen=True, eq=False)
class SavedDream:
    """Dreamed images as they were saved.

    Attributes:
        images: (N, C, H, W), float32 within 0..1.
        labels: (N,), int64: places in ``classes``.
        classes: names of all classes of the model.
        about: settings and results, as plain JSON.

    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    about: Mapping[str, Any]


def load_dream(path: str | Path) -> SavedDream:
    """Read the tensors of a dream.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFileError: if it is damaged or no dream.

    """
    tensors, content = read_file(path, _KIND, _VERSION)
    try:
        return SavedDream(tensors["images"], tensors["labels"], tuple(content["classes"]), content["about"])
    except (KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is not a valid dream: {error}") from error


@dataclass(frozen=True)
class DreamFiles:
    """Where the parts of a dream go.

    Attributes:
        grid: the picture, ``NAME.png``; the others are ``NAME.safetensors``, ``NAME-terms.png`` and, while the run
            is not finished, ``NAME-checkpoint.safetensors``.

    """

    grid: Path

    @classmethod
    def at(cls, out: str | Path) -> DreamFiles:
        """The files for ``--out``. Raises ValueError unless it ends with .png."""
        path = Path(out)
        if path.suffix.lower() != ".png" or path.is_dir():
            raise ValueError(f"--out must name a picture that ends with .png, got {out}")
        return cls(path)

    @property
    def tensors(self) -> Path:
        """Images, labels, settings."""
        return self.grid.with_suffix(".safetensors")

    @property
    def terms(self) -> Path:
        """The plot."""
        return self.grid.with_name(f"{self.grid.stem}-terms.png")

    @property
    def checkpoint(self) -> Path:
        """Where an unfinished run goes on."""
        return self.grid.with_name(f"{self.grid.stem}-checkpoint.safetensors")

    def prepare(self, overwrite: bool, resume: bool) -> None:
        """Make sure that the files can be written, and that nothing is lost by it.

        Raises:
            ValueError: if files are there already, or there is nothing to resume.
            OSError: if the folder cannot be made or written to.

        """
        if resume:
            if not self.checkpoint.is_file():
                ended = " (that run is finished)" if self.tensors.is_file() else ""
                raise ValueError(f"there is nothing to resume: no {self.checkpoint}{ended}")
            return
        there = [path for path in (self.checkpoint, self.grid, self.tensors, self.terms) if path.exists()]
        if there and not overwrite:
            go_on = " --resume goes on with that run," if there[0] == self.checkpoint else ""
            names = ", ".join(map(str, there))
            raise ValueError(
                f"already there: {names}.{go_on} --overwrite replaces what is there, or choose another --out"
            )
        self.grid.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(self.grid.parent, os.W_OK):
            raise PermissionError(f"the folder {self.grid.parent} cannot be written to")

    def save_tensors(self, images: Tensor, labels: Tensor, classes: Sequence[str], about: Mapping[str, Any]) -> None:
        """Write images (N, C, H, W) within 0..1, labels (N,) and what describes them."""
        content = {"classes": list(classes), "about": dict(about)}
        write_file(self.tensors, _KIND, _VERSION, {"images": images.float(), "labels": labels}, content)

    def save_checkpoint(self, checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
        """Write where an unfinished run stands, and what was asked of it."""
        content = {"record": dict(checkpoint.record), "request": dict(request)}
        write_file(self.checkpoint, _CHECKPOINT_KIND, _CHECKPOINT_VERSION, checkpoint.tensors, content)

    def load_checkpoint(self, request: Mapping[str, Any]) -> Checkpoint:
        """Read it back.

        Raises:
            DamagedFileError: if the file is damaged or foreign.
            ValueError: if it is of a run that was asked for something else; the message says what differs.

        """
        tensors, content = read_file(self.checkpoint, _CHECKPOINT_KIND, _CHECKPOINT_VERSION)
        before, now = _flat(content["request"]), _flat(request)
        differ = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        if "model" in differ:
            raise ValueError(
                f"{self.checkpoint} is of another model: give the same one, or start again with --overwrite"
            )
        if differ:
            listed = ", ".join(f"{key} was {before.get(key)}, is {now.get(key)}" for key in differ[:4])
            raise ValueError(
                f"{self.checkpoint} is of another run: {listed}. Give the same options, or start again with --overwrite"
            )
        return Checkpoint(tensors, content["record"])


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
