"""`remix backbones`."""

from __future__ import annotations

import re
from typing import Any

import torch

from remix.networks import backbone_options, create_backbone, list_backbones

__all__ = ["backbone_lines"]


def backbone_lines(pattern: str = "*") -> list[str]:
    """Name, images, features, parameters, options and description of every backbone that matches.

    Raises:
        ValueError: if none does.

    """
    names = sorted(list_backbones(pattern), key=_family_and_depth)
    if not names:
        raise ValueError(f"no backbone is called like {pattern!r}; there are: {', '.join(list_backbones())}")
    return [_line(name) for name in names]


def _family_and_depth(name: str) -> tuple[str, int]:
    family, depth = re.fullmatch(r"(.*?)(\d*)", name, re.S).groups()  # type: ignore[union-attr]
    return family, int(depth or 0)


def _line(name: str) -> str:
    with torch.device("meta"):  # sizes without memory
        backbone: Any = create_backbone(name)
    channels, height, width = backbone.input_shape
    parameters = sum(parameter.numel() for parameter in backbone.parameters())
    options = ", ".join(key for key in backbone_options(name) if key != "generator")
    images = f"{height} x {width} {'grey' if channels == 1 else 'colour'}"
    size = f"{backbone.feature_dim:>5} features {parameters / 1e6:>6.2f} M parameters"
    return f"{name:<10} {images:<17} {size}   options: {options}"
