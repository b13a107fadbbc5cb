"""`remix methods`, `presets`, `backbones` and `datasets`: what there is, one line each, or all about one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remix.data.registry import Entry

__all__ = ["backbones", "datasets", "methods", "presets"]


def methods(name: str | None = None) -> None:
    """The methods that REMIX can run, one line each; or what one is, what it keeps, and all its settings.

    Args:
        name: A method: its settings with their defaults, which a preset or --set may change, and their meanings.

    Examples:
        remix methods
        remix methods remix
    """
    from rich.console import Console

    from remix.cli.described import about, field_settings, show_about
    from remix.methods import list_methods, method_class

    if name is None:
        _list(list_methods())
        return
    kind = method_class(name)
    lines = [about(kind), f"It keeps {kind.keeps}."]
    if kind.named:
        lines.append(
            f"Settings that have a name: {', '.join(kind.named)} (--set settings.setting={list(kind.named)[-1]})"
        )
    found = field_settings(kind)
    settings = {f"settings (--set settings.{found[''][0].name}=...)": found.pop("")} if found[""] else {}
    show_about(Console(), name, lines, settings | found)


def presets(name: str | None = None) -> None:
    """The runs that are prepared: data, tasks, network and schedules, one line each; or all about one.

    Args:
        name: A preset, or a file NAME.yaml.

    Examples:
        remix presets
        remix presets cifar100-mini
    """
    from rich.console import Console

    from remix.cli.described import show_about
    from remix.experiments.config import build_config, list_presets, read_preset

    if name is None:
        _list(list_presets())
        return
    values = read_preset(name)
    config = build_config(values)
    data, network = config.data, config.network
    first = f", the first of {data.first} classes" if data.first else ""
    some = f", the first {data.classes} classes" if data.classes else ""
    options = "".join(f", {key}={value}" for key, value in network.options.items())
    lines = [
        str(values.get("about", "")),
        f"data: {data.name}{some}, {data.tasks} tasks{first}, order {data.order}",
        f"network: {network.backbone}{options}; batches of {config.batch_size}",
        f"method: {config.method}, unless --method names another; with schedules of their own here: "
        f"{', '.join(values.get('methods', {})) or 'none'}",
        f"every setting: remix run {name} --show-settings; tasks, epochs and time: remix run {name} --dry-run",
    ]
    show_about(Console(), name, lines, {})


def _list(lines: dict[str, str]) -> None:
    from remix.cli.output import show, text_table

    show(text_table(("", ""), list(lines.items())).lstrip("\n"))


def backbones(pattern: str = "*") -> None:
    """The networks that REMIX knows by name, one line each; or all about one.

    Args:
        pattern: A network, or only names like this, such as "resnet*".

    Examples:
        remix backbones
        remix backbones resnet32
    """
    from rich.console import Console

    from remix.cli.described import about, options_of, show_about
    from remix.networks import backbone_options, list_backbones
    from remix.networks.registry import backbone_factory

    names = sorted(list_backbones(pattern), key=_family_and_depth)
    if not names:
        backbone_factory(pattern)  # raises, and says what is near
    if pattern not in names:
        _list({name: _backbone_line(name) for name in names})
        return
    options = {key: value for key, value in backbone_options(pattern).items() if key != "generator"}
    factory = backbone_factory(pattern)
    heading = "options (--set network.options.NAME=..., or --options NAME=...)"
    lines = [about(factory), _backbone_line(pattern)]
    show_about(Console(), pattern, lines, {heading: options_of(factory, options)} if options else {})


def datasets(name: str | None = None) -> None:
    """The data sets that REMIX reads by name, one line each; of which the folder REMIX_DATA has a part, that too.

    Args:
        name: A data set: its numbers, what to have where, and its options.

    Examples:
        remix datasets
        remix datasets cifar100
    """
    import inspect

    from rich.console import Console

    from remix.cli.described import about, options_of, show_about
    from remix.data import list_datasets
    from remix.data.registry import find_dataset

    if name is None:
        parts = {entry: _part_here(entry) for entry in list_datasets()}
        _list({entry.name: f"{entry.about}; here {part}" if part else entry.about for entry, part in parts.items()})
        return
    entry = find_dataset(name)
    parameters = inspect.signature(entry.read).parameters
    lines = [about(entry.read)]
    if entry.counts:
        lines.append(f"{entry.classes} classes; {entry.counts[0]:,} training and {entry.counts[1]:,} test images")
    if entry.place:
        lines.append(f"In the data folder (--data DIR, or REMIX_DATA): {entry.place}")
        lines += [f"Here: {part} classes"] if (part := _part_here(entry)) else []
        lines.append(f"To find, check and count it: remix data prepare {name if name != 'folder' else 'PATH'}")
    options = {key: one.default for key, one in parameters.items() if key != "root"}
    heading = "options (--set data.options.NAME=..., or load(..., NAME=...))"
    show_about(Console(), name, lines, {heading: options_of(entry.read, options)} if options else {})


def _part_here(entry: Entry) -> str:
    """What the folder that REMIX_DATA names has, if it is a part of the classes; nothing if that cannot be read."""
    import os

    from remix.data import DataError

    root = os.environ.get("REMIX_DATA")
    try:
        return entry.part_here(Path(root)) if root else ""
    except (DataError, OSError):
        return ""


def _family_and_depth(name: str) -> tuple[str, int]:
    family, depth = re.fullmatch(r"(.*?)(\d*)", name, re.S).groups()  # type: ignore[union-attr]
    return family, int(depth or 0)


def _backbone_line(name: str) -> str:
    """Images, features and parameters."""
    if name == "transformer":
        return "--backbone hf:PATH_OR_NAME: a ViT, DeiT, DINOv2 or CLIP of the transformers library"
    import torch

    from remix.networks import create_backbone

    with torch.device("meta"):  # sizes without memory
        backbone: Any = create_backbone(name)
    channels, height, width = backbone.input_shape
    parameters = sum(parameter.numel() for parameter in backbone.parameters())
    images = f"{height} x {width} {'grey' if channels == 1 else 'colour'}"
    return f"{images}, {backbone.feature_dim} features, {parameters / 1e6:.2f} M parameters"
