"""Saving an unfinished inversion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from remix.statistics import read_file, write_file

__all__ = ["Checkpoint"]

_KIND, _VERSION = "inversion", 1  # of the file


@dataclass(frozen=True)
class Checkpoint:
    """Where a strategy stands, as plain tensors and plain JSON."""

    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file."""
        write_file(path, _KIND, _VERSION, self.tensors, dict(self.record))

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read it back. Raises FileNotFoundError or DamagedFileError."""
        return cls(*read_file(path, _KIND, _VERSION))
