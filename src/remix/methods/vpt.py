"""VPT: visual prompts."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from remix.learning.stage import Training
from remix.methods.adapter_training import LocalAdapters
from remix.methods.registry import method

__all__ = ["Vpt"]


@method("vpt")
@dataclass(frozen=True)
class Vpt(LocalAdapters):
    """Visual prompts learn each task: tokens of every layer (deep-prompts), or of the first (prompts).

    Texts stay as they are. Settings as in `LocalAdapters`; published are none.
    """

    plug_ins: ClassVar[tuple[str, ...]] = ("deep-prompts", "prompts")
    training: Training = Training(10, 1e-3, weight_decay=0.0, optimiser="adam", schedule="cosine")
