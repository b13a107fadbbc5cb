"""What a run is told of the texts of a head that knows classes by their names."""

from __future__ import annotations

from dataclasses import dataclass

from remix.networks.text_head import TEMPLATE

__all__ = ["TextConfig"]


@dataclass(frozen=True)
class TextConfig:
    """The texts of a head that knows classes by their names.

    Attributes:
        tower: `transformers` folder of the text tower; by default that of the backbone, which is a CLIP then.
        projection: of a sentence encoder: safetensors file, see `remix.networks.open_text_tower`.
        templates: texts with a ``{}`` for the name of a class; several are averaged.

    """

    tower: str | None = None
    projection: str | None = None
    templates: tuple[str, ...] = (TEMPLATE,)
