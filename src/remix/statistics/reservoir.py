"""A bounded, fair sample of the rows of a stream."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Reservoir"]


class Reservoir:
    """Keeps ``capacity`` rows of a stream, every subset equally likely, in memory that does not grow.

    Every row draws a random key and the smallest keys stay. The keys come from a seed and the row's place in the
    stream, so the choice does not depend on how the stream is cut into batches.

    Args:
        capacity: most rows to keep.
        dim: D.
        seed: of the choice.

    """

    def __init__(self, capacity: int, dim: int, seed: int = 0) -> None:
        if capacity < 1 or dim < 1:
            raise ValueError(f"capacity and dim must be at least 1, got {capacity} and {dim}")
        self.capacity = capacity
        self.dim = dim
        self.seen = 0
        self._generator = torch.Generator().manual_seed(seed)
        self._keys = torch.empty(0, dtype=torch.float64)
        self._rows: Tensor | None = None

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Offer rows (n, D). Raises ValueError for another shape."""
        if rows.dim() != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"rows must have shape (n, {self.dim}), got {tuple(rows.shape)}")
        keys = torch.rand(len(rows), dtype=torch.float64, generator=self._generator)
        self.seen += len(rows)
        room = self.capacity - len(self._keys)
        if room > 0 and len(rows):
            self._extend(keys[:room], rows[:room])
        keys, rows = keys[max(room, 0) :], rows[max(room, 0) :]
        if not len(keys):
            return
        # Of the kept and the new keys together the smallest stay; each new winner takes the place of a loser.
        winners = torch.cat([self._keys, keys]).argsort()[: self.capacity]
        stays = torch.zeros(self.capacity, dtype=torch.bool)
        stays[winners[winners < self.capacity]] = True
        new = (winners[winners >= self.capacity] - self.capacity).sort().values
        free = (~stays).nonzero()[:, 0]
        assert self._rows is not None
        self._keys[free] = keys[new]
        self._rows[free.to(rows.device)] = rows.detach()[new.to(rows.device)]

    def _extend(self, keys: Tensor, rows: Tensor) -> None:
        if self._rows is None:
            self._rows = torch.empty(self.capacity, self.dim, dtype=rows.dtype, device=rows.device)
        start = len(self._keys)
        self._rows[start : start + len(keys)] = rows.detach()
        self._keys = torch.cat([self._keys, keys])

    def rows(self) -> Tensor:
        """The kept rows (min(seen, capacity), D), in random order.

        Raises:
            ValueError: if none was offered.

        """
        if self._rows is None:
            raise ValueError("the reservoir is empty: no row was offered")
        return self._rows[self._keys.argsort().to(self._rows.device)]
