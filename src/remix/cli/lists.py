"""The sub-commands of `remix` that say what there is; see `remix.cli` for how such functions are written."""

from __future__ import annotations

import re
import sys
from typing import Any, Literal

__all__ = ["backbones", "data", "datasets", "methods", "presets"]


def datasets() -> None:
    """The data sets that REMIX reads by name, one line each."""
    from rich.console import Console

    from remix.data.show import show_datasets

    show_datasets(Console())


def data(action: Literal["prepare"], name: str, *, data: str | None = None) -> None:
    """Find a data set, check it, count its images per class; download it if it is not there and can be fetched.

    Args:
        action: What to do: prepare.
        name: Of the data set (see: remix datasets), or a folder with one sub-folder of images per class.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.

    Examples:
        remix data prepare cifar100 --data ~/data
        remix data prepare photos/
    """
    from rich.console import Console

    from remix.data import DataError
    from remix.data.prepare import prepare
    from remix.data.show import show_splits

    console = Console()
    try:
        show_splits(prepare(name, data, console), console)
    except DataError as error:
        print(f"remix data {action}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"remix data {action}: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


def methods() -> None:
    """The methods that REMIX can run, one line each."""
    from remix.methods import list_methods

    _list(list_methods())


def presets() -> None:
    """The runs that are prepared: data, tasks, network and schedules, one line each."""
    from remix.experiments.presets import list_presets

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
