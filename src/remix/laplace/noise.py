"""Random numbers that do not depend on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["standard_normal"]


def standard_normal(
    shape: Sequence[int], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Standard normal numbers, drawn where the generator lives and then moved: a seed means the same on every device.

    Without a generator they are drawn on the device, from torch's own.
    """
    source = device if generator is None else generator.device
    return torch.randn(tuple(shape), generator=generator, dtype=dtype, device=source).to(device)
