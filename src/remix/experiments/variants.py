"""Names for runs of one method with different settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["variant_names"]

_SHOWN = 4  # settings named, at most


def variant_names(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A name per run, the same for runs of the same method and settings.

    The method's name if all its runs have the same settings, else with what sets them apart:
    ``remix (prior.form=nll)`` and ``remix (prior.form=typical)``.

    Args:
        runs: method and settings (nested mappings of primitives) of every run.

    """
    flat = [_flat(settings) for _, settings in runs]
    names = []
    for (method, _), mine in zip(runs, flat, strict=True):
        family = [other for (name, _), other in zip(runs, flat, strict=True) if name == method]
        apart = [path for path in mine if len({_text(other.get(path)) for other in family}) > 1]
        words = [f"{'.'.join(path.split('.')[-2:])}={_text(mine[path])}" for path in apart]
        more = [f"+{len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
        names.append(f"{method} ({', '.join(words[:_SHOWN] + more)})" if words else method)
    return names


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{at}.{key}" if at else str(key)
        found |= _flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
