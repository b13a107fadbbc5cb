"""The rows of a fit: a tensor, an array or memory map, or batches; all at hand, or read in passes."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["MEMORY", "Data", "Layout", "Rows", "open_rows"]

Array = np.ndarray[Any, np.dtype[Any]]
Data = Tensor | Array | Iterable[Tensor | Array]
Layout = tuple[int, int, int]

MEMORY = 4 << 30
COPIES = 3  # copies of the rows that a fit in memory needs at its peak
_FEWEST = 16  # rows that must fit for an order to be found


def open_rows(x: Data, memory: int) -> Rows:
    """``x`` as rows at hand where a fit to them takes no more than ``memory`` bytes, else to be read in passes.

    Raises:
        ValueError: rows of a wrong shape or type; an iterator that can be read only once and does not fit.
    """
    if isinstance(x, Tensor | np.ndarray):
        rows = Rows(x)
        fits = COPIES * rows.rows * rows.dim * rows.dtype.itemsize <= memory
        return rows if fits else rows.in_passes(x, memory)
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
            return Rows(_joined(parts), fewest=1).in_passes(x, memory)
    return Rows(_joined(parts))


def _joined(parts: list[Tensor]) -> Tensor:
    """Batches (n, D) as one tensor. Raises ValueError if there are none, or their shapes do not fit together."""
    if not parts:
        raise ValueError("x is an iterable without any batch; expected at least one of shape (rows, features)")
    if any(part.ndim != 2 or part.shape[1] != parts[0].shape[1] for part in parts):
        shapes = sorted({tuple(part.shape) for part in parts})
        raise ValueError(f"the batches of x must be (rows, features) with one number of features, got shapes {shapes}")
    return torch.cat(parts)


class Rows:
    """N rows of D features, read in the dtype that computes.

    At hand (``streamed`` False) they are read a block of columns at a time; in passes, from the first row to the last
    as often as needed, in blocks of at most ``step`` rows, of which ``sample`` can be fitted in memory.

    Args:
        x: (N, D) floating tensor (any device, strides), or (N, D) numpy array or memory map.
        fewest: rows that there must be.

    Raises:
        ValueError: not two-dimensional, not floating, empty, or fewer rows.
    """

    def __init__(self, x: Tensor | Array, fewest: int = 2) -> None:
        if x.ndim != 2:
            raise ValueError(f"x must be (rows, features), got shape {tuple(x.shape)}; flatten feature maps first")
        floating = x.is_floating_point() if isinstance(x, Tensor) else np.issubdtype(x.dtype, np.floating)
        if not floating:
            raise ValueError(f"x must hold floating-point numbers, got {x.dtype}; convert it with .float()")
        if x.shape[0] < fewest or x.shape[1] < 1:
            raise ValueError(f"x must have at least {fewest} rows and 1 feature, got shape {tuple(x.shape)}")
        self._x: Any = x
        self.rows, self.dim = int(x.shape[0]), int(x.shape[1])
        self.dtype = torch.float64 if x.dtype in (torch.float64, np.float64) else torch.float32
        self.device = x.device if isinstance(x, Tensor) else torch.device("cpu")
        self.streamed, self.step, self.sample = False, self.rows, self.rows

    def in_passes(self, x: Data, memory: int) -> Rows:
        """All rows of ``x``, like these, which are some of them; ``rows`` is known after `survey` has counted them.

        Args:
            x: (N, D) tensor or array, or an iterable of (n, D) batches that starts anew every time.
            memory: bytes that copies of rows may take.

        Raises:
            ValueError: where too few rows fit for an order to be found.
        """
        self._x, self.streamed, self.rows = x, True, 0
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
        return self

    @property
    def single(self) -> bool:
        """Whether single rows can be had without reading the others."""
        return isinstance(self._x, Tensor | np.ndarray)

    def columns(self, start: int, stop: int, index: Tensor | None) -> Tensor:
        """Features start..stop of the rows ``index`` (all where None), (rows, stop - start), on the CPU."""
        if isinstance(self._x, Tensor):
            block = self._x[:, start:stop].detach()
            block = block if index is None else block[index.to(block.device)]
            return block.to("cpu", self.dtype)
        return self._computing(self._x[:, start:stop] if index is None else self._x[index.numpy(), start:stop])

    def blocks(self) -> Iterator[Tensor]:
        """All rows in their order, (n, D) with n up to ``step``, on the CPU in the dtype that computes."""
        if self.single:
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
        if self.single:
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

    def _computing(self, rows: Tensor | Array) -> Tensor:
        if isinstance(rows, Tensor):
            return rows.detach().to("cpu", self.dtype)
        return torch.from_numpy(np.array(rows)).to(self.dtype)


def _give_back(x: Any) -> None:
    """Let go of pages of a read-only memory map: they stay in the system's cache but no longer count as ours."""
    if not isinstance(x, np.memmap) or x.mode != "r" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base: Any = x
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None:
        base.madvise(mmap.MADV_DONTNEED)
