"""`remix methods`, `remix presets` and `remix backbones`; see `remix.cli` for how such functions are written."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["backbones", "methods", "presets"]


def methods() -> None:
    """The methods that REMIX can run, one line each."""
    from remix.methods import list_methods

    _list(list_methods())


def presets() -> None:
    """The runs that are prepared: data, tasks, network and schedules, one line each."""
    from remix.experiments.config import list_presets

    _list(list_presets())


def _list(lines: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, about in lines.items():
        table.add_row(name, about)
    Console().print(table)


def backbones(pattern: str = "*") -> None:
    """The networks that REMIX knows by name, one line each.

    Args:
        pattern: Only names like this, such as "resnet*".
    """
    from remix.networks import list_backbones

    names = sorted(list_backbones(pattern), key=_family_and_depth)
    if not names:
        raise ValueError(f"no backbone is called like {pattern!r}; there are: {', '.join(list_backbones())}")
    for name in names:
        print(_backbone_line(name))


def _family_and_depth(name: str) -> tuple[str, int]:
    family, depth = re.fullmatch(r"(.*?)(\d*)", name, re.S).groups()  # type: ignore[union-attr]
    return family, int(depth or 0)


def _backbone_line(name: str) -> str:
    """Name, images, features, parameters and options."""
    if name == "transformer":
        return f"{name:<10} --backbone hf:PATH_OR_NAME: a ViT, DeiT, DINOv2 or CLIP of the transformers library"
    import torch

    from remix.networks import backbone_options, create_backbone

    with torch.device("meta"):  # sizes without memory
        backbone: Any = create_backbone(name)
    channels, height, width = backbone.input_shape
    parameters = sum(parameter.numel() for parameter in backbone.parameters())
    options = ", ".join(key for key in backbone_options(name) if key != "generator")
    images = f"{height} x {width} {'grey' if channels == 1 else 'colour'}"
    size = f"{backbone.feature_dim:>5} features {parameters / 1e6:>6.2f} M parameters"
    return f"{name:<10} {images:<17} {size}   options: {options}"
