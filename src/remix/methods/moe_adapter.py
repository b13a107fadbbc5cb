"""MoE-Adapter: mixtures of adapters in every block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from remix.methods.adapter_training import LocalAdapters
from remix.methods.registry import method

__all__ = ["MoeAdapter"]


@method("moe-adapter")
@dataclass(frozen=True)
class MoeAdapter(LocalAdapters):
    """Mixtures of adapters in every block of a transformer learn each task; nothing is replayed.

    With a text head of CLIP there are adapters in the text tower too. Settings as in `LocalAdapters`.
    """

    plug_ins: ClassVar[tuple[str, ...]] = ("moe",)
