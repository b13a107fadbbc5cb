"""Presets by name, and configuration files of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from remix.support.documents import DocumentError, parse_yaml, read_yaml
from remix.support.files import why_unreadable
from remix.support.settings import SettingError
from remix.support.text import did_you_mean, printable, shown

__all__ = ["list_presets", "read_preset"]


def list_presets() -> dict[str, str]:
    """Every preset with its one line, smallest first."""
    texts = {name: _content(parse_yaml(_file(name).read_text()), name)["about"] for name in _names()}
    return dict(sorted(texts.items(), key=lambda item: _rank(item[0])))


def read_preset(name: str) -> dict[str, Any]:
    """The content of a preset, or of a YAML file given by its path.

    With ``base: NAME`` it says only what differs from the preset of that name.

    Raises:
        SettingError: if there is none, or it is not a mapping in YAML.

    """
    values = _read(name)
    if "base" not in values:
        return values
    base = _read(str(values.pop("base")))
    if "base" in base:
        raise SettingError(f"the base of {printable(name)} has a base itself; name the last one")
    return _over(base, values)


def _over(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings within mappings: what ``values`` says goes before what ``base`` says."""
    merged = dict(base)
    for key, value in values.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _read(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            return _content(read_yaml(path), name)
        except (OSError, DocumentError) as error:
            raise SettingError(why_unreadable(path, error)) from error
    if name not in _names():
        hint = did_you_mean(name, _names())
        known = ", ".join(sorted(_names(), key=_rank))
        raise SettingError(f"there is no preset {shown(name)}{hint}; there are: {known}; or give a file NAME.yaml")
    return _content(parse_yaml(_file(name).read_text()), name)


def _content(values: Any, name: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SettingError(f"{printable(name)} must hold settings as key: value")
    return dict(values)


def _names() -> list[str]:
    return [file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml")]


def _file(name: str) -> Any:
    return _folder().joinpath(f"{name}.yaml")


def _folder() -> Any:
    return resources.files("remix").joinpath("presets")


def _rank(name: str) -> tuple[int, int, str]:
    """Small ones first, then by data set and number of tasks."""
    families = ["digits", "fashion", "cifar100-mini", "cifar100", "tiny"]
    place = next((i for i, family in enumerate(families) if name.startswith(family)), len(families))
    tasks = name.rpartition("-")[2]
    return place, int(tasks) if tasks.isdigit() else 0, name
