"""Rows that do not fit in memory: read in passes, a few rows at a time."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remix.laplace.fitting.prepare import Array, Data, Rows, joined

__all__ = ["MEMORY", "Passes", "open_rows"]

MEMORY = 4 << 30
COPIES = 3  # copies of the rows that a fit in memory needs at its peak
_FEWEST = 16  # rows that must fit for an order to be found


def open_rows(x: Data, memory: int) -> Rows | Passes:
    """``x`` as rows in memory where a fit to them takes no more than ``memory`` bytes, else as passes.

    Raises:
        ValueError: rows of a wrong shape or type; an iterator that can be read only once and does not fit.
    """
    if isinstance(x, Tensor | np.ndarray):
        rows = Rows(x)
        return rows if COPIES * rows.rows * rows.dim * rows.dtype.itemsize <= memory else Passes(x, rows, memory)
    try:
        batches = iter(x)
    except TypeError as error:
        raise ValueError(f"x must be a tensor, an array or an iterable of batches, got {type(x).__name__}") from error
    parts: list[Tensor] = []
    size = 0
    for batch in batches:
        parts.append(torch.as_tensor(batch))
        size += parts[-1].numel() * max(4, parts[-1].element_size())
        if COPIES * size > memory:
            if batches is x:
                raise ValueError(
                    f"the rows of x do not fit in memory={memory} bytes and x can be read only once; give a memory "
                    "map, or an object whose iteration starts anew every time, or raise memory"
                )
            return Passes(x, Rows(joined(parts), fewest=1), memory)
    return Rows(joined(parts))


class Passes:
    """Rows read from the first to the last as often as needed.

    Args:
        x: (N, D) tensor or array, or an iterable of (n, D) batches that starts anew every time.
        like: some of the rows: their number of features, dtype and device are those of all.
        memory: bytes that copies of rows may take.

    Attributes:
        step: most rows of a block.
        sample: most rows that can be fitted in memory.

    Raises:
        ValueError: where too few rows fit for an order to be found.
    """

    def __init__(self, x: Data, like: Rows, memory: int) -> None:
        self._x = x
        self.dim, self.dtype, self.device = like.dim, like.dtype, like.device
        row = self.dim * self.dtype.itemsize
        fixed = 1000 * self.dim  # candidate edges; later parameters, gradients and the memory of the optimiser
        self.sample = int((memory - fixed) // (COPIES * row))
        self.step = min(256, max(1, int((memory - fixed) // (5 * row))))
        if self.sample < _FEWEST:
            need = fixed + COPIES * row * _FEWEST
            raise ValueError(
                f"memory={memory} bytes hold {max(self.sample, 0)} rows of {self.dim} features, and a fit needs "
                f"{_FEWEST}: give memory={need} or more"
            )
        self.rows = 0  # known after the first pass

    def blocks(self) -> Iterator[Tensor]:
        """All rows in their order, (n, D) with n up to ``step``, on the CPU in the dtype that computes."""
        if isinstance(self._x, Tensor | np.ndarray):
            for start in range(0, self._x.shape[0], self.step):
                yield self._computing(self._x[start : start + self.step])
                _give_back(self._x)
            return
        for batch in self._x:
            for part in torch.as_tensor(batch).split(self.step):
                if part.ndim != 2 or part.shape[1] != self.dim:
                    raise ValueError(f"the batches of x must be (rows, {self.dim}), got {tuple(part.shape)}")
                yield self._computing(part)

    def take(self, index: Tensor) -> Tensor:
        """The rows ``index`` (n,), in that order, (n, D)."""
        found = torch.empty(len(index), self.dim, dtype=self.dtype)
        if isinstance(self._x, Tensor | np.ndarray):
            for place, row in enumerate(index.tolist()):
                found[place] = self._computing(self._x[row : row + 1])[0]
            _give_back(self._x)
            return found
        places = dict(zip(index.tolist(), range(len(index)), strict=True))
        first = 0
        for block in self.blocks():
            for row in range(first, first + len(block)):
                if row in places:
                    found[places[row]] = block[row - first]
            first += len(block)
        return found

    @property
    def shuffles(self) -> bool:
        """Whether single rows can be had without reading the others."""
        return isinstance(self._x, Tensor | np.ndarray)

    def _computing(self, rows: Tensor | Array) -> Tensor:
        if isinstance(rows, Tensor):
            return rows.detach().to("cpu", self.dtype)
        return torch.from_numpy(np.array(rows)).to(self.dtype)


def _give_back(x: Tensor | Array | Iterable[Any]) -> None:
    """Let go of pages of a read-only memory map: they stay in the system's cache but no longer count as ours."""
    base: Any = x
    if not isinstance(x, np.memmap) or x.mode != "r" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None:
        base.madvise(mmap.MADV_DONTNEED)
