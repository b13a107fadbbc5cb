"""Names for runs of one method with different settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["protocol", "variant_names"]

_SHOWN = 4  # settings named, at most


# What a run has besides data, network and training: method and seed are compared, and the device is not a setting.
_COMPARED = ("method", "settings", "seed", "accelerator", "devices", "precision")


def protocol(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of the configuration of a run, what the methods that are compared should have in common."""
    return {key: value for key, value in config.items() if key not in _COMPARED}


def variant_names(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A name per run, the same for runs of the same method and settings.

    The method's name if all its runs have the same settings, else with what sets them apart:
    ``remix (prior.form=nll)`` and ``remix (prior.form=typical)``.

    Args:
        runs: method and settings (nested mappings of primitives) of every run.

    """
    flat = [_flat(settings) for _, settings in runs]
    methods = [method for method, _ in runs]
    families = {
        name: _apart([one for one, method in zip(flat, methods, strict=True) if method == name])
        for name in dict.fromkeys(methods)
    }
    apart = [[path for path in mine if path in families[method]] for mine, method in zip(flat, methods, strict=True)]
    names = [_name(method, mine, paths, _SHOWN) for method, mine, paths in zip(methods, flat, apart, strict=True)]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    for alike in places.values():
        differing = _apart([flat[place] for place in alike])
        telling = [path for path in flat[alike[0]] if path in differing]  # what the name does not say, first
        for place in alike if telling else []:
            paths = [*telling, *(path for path in apart[place] if path not in telling)]
            names[place] = _name(methods[place], flat[place], paths, max(_SHOWN, len(telling)))
    return names


def _apart(family: Sequence[Mapping[str, Any]]) -> set[str]:
    """The settings in which a family differs."""
    paths = dict.fromkeys(path for one in family for path in one)
    return {path for path in paths if len({_text(one.get(path)) for one in family}) > 1}


def _name(method: str, mine: Mapping[str, Any], paths: Sequence[str], shown: int) -> str:
    words = [f"{'.'.join(path.split('.')[-2:])}={_text(mine.get(path))}" for path in paths]
    more = [f"+{len(words) - shown} more"] if len(words) > shown else []
    return f"{method} ({', '.join(words[:shown] + more)})" if words else method


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{at}.{key}" if at else str(key)
        found |= _flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
