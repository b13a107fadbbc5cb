"""Torch's global random source, which belongs to whoever calls us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["undisturbed"]


@contextmanager
def undisturbed(seed: int | None = None) -> Iterator[None]:
    """A context, or decorator, after which the global random source of the processor is as it was before.

    Modules draw from it when they are built, even if their weights are loaded afterwards, and dropout does in training.

    Args:
        seed: where the source begins within; where it stands by default.

    """
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        yield
