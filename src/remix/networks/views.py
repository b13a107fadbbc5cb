"""Which numbers of an activation are the sample and which are its coordinates.

A view turns an activation into rows: samples x coordinates. Activations are batch first everywhere: images and maps
are (N, C, H, W), tokens are (N, L, D). A module that works sequence first has to be watched where it is batch first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = [
    "CHANNELS",
    "MAP",
    "PATCHES",
    "POOLED_PATCHES",
    "TOKEN_CHANNELS",
    "TOKEN_POSITIONS",
    "View",
    "as_view",
    "list_views",
]

Shape = tuple[int, ...]


class View(Protocol):
    """A named way to read activations as rows. `as_view(view.name)` gives the view back."""

    @property
    def name(self) -> str:
        """The name under which it is saved."""
        ...

    @property
    def axis(self) -> int | None:
        """Of an activation, the axis along which the coordinates lie; None where they are all but the first."""
        ...

    @property
    def per_image(self) -> bool:
        """Whether an image is a single row, so that a batch of few images has few rows."""
        ...

    def rows(self, x: Tensor) -> Tensor:
        """Activation (N, ...) -> (samples, coordinates), differentiable. Raises ValueError for a wrong rank."""
        ...

    def dim(self, shape: Shape) -> int:
        """Number of coordinates for activations (N, *shape). Raises ValueError for a wrong rank."""
        ...

    def layout(self, shape: Shape) -> tuple[int, int, int] | None:
        """(C, H, W) where the coordinates are a map's, else None."""
        ...


@dataclass(frozen=True)
class Channels:
    """Every position of every image is a sample of its C channels: (N, C, H, W) -> (N H W, C), (N, C) as it is."""

    name: str = "channels"
    axis: int | None = 1
    per_image: bool = False

    def rows(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N H W, C)."""
        self.dim(tuple(x.shape[1:]))
        return x if x.dim() == 2 else x.movedim(1, -1).reshape(-1, x.shape[1])

    def dim(self, shape: Shape) -> int:
        """C."""
        _check(self.name, shape, (1, 3), "(N, C, H, W) or (N, C)")
        return shape[0]

    def layout(self, shape: Shape) -> tuple[int, int, int] | None:
        """None."""
        return None


@dataclass(frozen=True)
class TokenPositions:
    """Every feature of every image is a sample of the L positions: (N, L, D) -> (N D, L)."""

    name: str = "token-positions"
    axis: int | None = 1
    per_image: bool = False

    def rows(self, x: Tensor) -> Tensor:
        """(N, L, D) -> (N D, L)."""
        length = self.dim(tuple(x.shape[1:]))
        return x.movedim(1, -1).reshape(-1, length)

    def dim(self, shape: Shape) -> int:
        """L."""
        _check(self.name, shape, (2,), "(N, L, D)")
        return shape[0]

    def layout(self, shape: Shape) -> tuple[int, int, int] | None:
        """None."""
        return None


@dataclass(frozen=True)
class TokenChannels:
    """Every token of every image is a sample of its D features: (N, L, D) -> (N L, D)."""

    name: str = "token-channels"
    axis: int | None = 2
    per_image: bool = False

    def rows(self, x: Tensor) -> Tensor:
        """(N, L, D) -> (N L, D)."""
        return x.reshape(-1, self.dim(tuple(x.shape[1:])))

    def dim(self, shape: Shape) -> int:
        """D."""
        _check(self.name, shape, (2,), "(N, L, D)")
        return shape[1]

    def layout(self, shape: Shape) -> tuple[int, int, int] | None:
        """None."""
        return None


@dataclass(frozen=True)
class FullMap:
    """Every image is one sample of all its numbers: (N, C, H, W) -> (N, C H W), channels outermost."""

    name: str = "map"
    axis: int | None = None
    per_image: bool = True

    def rows(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C H W)."""
        return x.reshape(-1, self.dim(tuple(x.shape[1:])))

    def dim(self, shape: Shape) -> int:
        """C H W."""
        _check(self.name, shape, (3,), "(N, C, H, W)")
        return math.prod(shape)

    def layout(self, shape: Shape) -> tuple[int, int, int] | None:
        """(C, H, W)."""
        self.dim(shape)
        return shape[0], shape[1], shape[2]


@dataclass(frozen=True)
class Patches:
    """Every image is one sample of all its patch tokens, channels outermost: (N, L, D) -> (N, D P).

    The patches are the square of tokens at the end: behind them no prompts may come.
    """

    name: str = "patches"
    axis: int | None = None
    per_image: bool = True

    def rows(self, x: Tensor) -> Tensor:
        """(N, L, D) -> (N, D P)."""
        _, side, _ = self.layout(tuple(x.shape[1:]))
        return x[:, -side * side :].mT.flatten(1)

    def dim(self, shape: Shape) -> int:
        """D P."""
        return math.prod(self.layout(shape))

    def layout(self, shape: Shape) -> tuple[int, int, int]:
        """(D, H, W) of the map that the patches are cut from."""
        _check(self.name, shape, (2,), "(N, L, D)")
        side = math.isqrt(shape[0])
        return shape[1], side, side


@dataclass(frozen=True)
class PooledPatches:
    """The mean over the patch tokens of every image is a sample: (N, L, D) -> (N, D). Patches are as in `Patches`."""

    name: str = "pooled-patches"
    axis: int | None = None
    per_image: bool = True

    def rows(self, x: Tensor) -> Tensor:
        """(N, L, D) -> (N, D)."""
        dim = self.dim(tuple(x.shape[1:]))
        return PATCHES.rows(x).unflatten(1, (dim, -1)).mean(2)

    def dim(self, shape: Shape) -> int:
        """D."""
        _check(self.name, shape, (2,), "(N, L, D)")
        return shape[1]

    def layout(self, shape: Shape) -> tuple[int, int, int] | None:
        """None."""
        return None


CHANNELS = Channels()
TOKEN_POSITIONS = TokenPositions()
TOKEN_CHANNELS = TokenChannels()
MAP = FullMap()
PATCHES = Patches()
POOLED_PATCHES = PooledPatches()

_ALL: tuple[View, ...] = (CHANNELS, TOKEN_POSITIONS, TOKEN_CHANNELS, MAP, PATCHES, POOLED_PATCHES)
_VIEWS = {view.name: view for view in _ALL}


def list_views() -> list[str]:
    """Names that `as_view` knows."""
    return list(_VIEWS)


def as_view(view: str | View) -> View:
    """A view, from its name or itself.

    Raises:
        ValueError: for an unknown name.

    """
    if not isinstance(view, str):
        return view
    if view not in _VIEWS:
        raise ValueError(f"unknown view {view!r}; there are: {', '.join(_VIEWS)}")
    return _VIEWS[view]


def _check(name: str, shape: Shape, ranks: tuple[int, ...], expected: str) -> None:
    if len(shape) not in ranks:
        given = ", ".join(["N", *map(str, shape)])
        raise ValueError(f"view '{name}' reads activations {expected}, got ({given})")
