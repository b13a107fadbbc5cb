"""Plain mappings (YAML, --set) over dataclasses with defaults, checked by their types; errors are one sentence."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from remix.support.text import did_you_mean, shown

__all__ = ["SettingError", "merged", "overlay", "plain", "set_path", "unknown_name"]

Settings = TypeVar("Settings")


class SettingError(ValueError):
    """A setting that does not exist or has a value that does not fit; the message says which and what would."""


def overlay(default: Settings, values: Any, at: str = "") -> Settings:
    """A copy of a dataclass instance in which a mapping of its fields, as deep as it goes, has been replaced.

    Args:
        default: what holds where ``values`` says nothing.
        values: by field; a field that is itself a dataclass takes a mapping, and one that is a mapping keeps the keys
            that are not named.
        at: where this is, for messages.

    Raises:
        SettingError: for an unknown field or a value that does not fit.

    """
    if not isinstance(values, Mapping):
        raise SettingError(f"{at or 'the settings'} must be a mapping of settings, got {shown(values)}")
    fields = {field.name: field for field in dataclasses.fields(default) if field.init}  # type: ignore[arg-type]
    hints = get_type_hints(type(default))
    changed = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown_name(str(name), list(fields), at)
        changed[name] = _convert(value, hints[name], getattr(default, name), f"{at}.{name}" if at else str(name))
    try:
        return dataclasses.replace(default, **changed)  # type: ignore[type-var]
    except (ValueError, TypeError) as error:
        raise SettingError(f"{at or 'settings'}: {error}") from error


def merged(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings within mappings: what ``values`` says goes before what ``base`` says."""
    found = dict(base)
    for key, value in values.items():
        below = found.get(key)
        found[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found


def plain(value: Any) -> Any:
    """A dataclass as mappings, lists and primitives, as `overlay` takes them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def set_path(target: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path of nested mappings, which are made where they are missing."""
    *parents, last = path.split(".")
    for parent in parents:
        below = target.get(parent)
        target[parent] = below if isinstance(below, dict) else {}
        target = target[parent]
    target[last] = value


def unknown_name(name: str, known: list[str], at: str) -> SettingError:
    """The error for a name that is not there."""
    where = f"{shown(at)} has" if at else "there is"
    return SettingError(
        f"{where} no setting {shown(name)}{did_you_mean(name, known)}; known: {', '.join(known) or 'none'}"
    )


def _convert(value: Any, hint: Any, default: Any, at: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional(value, [part for part in get_args(hint) if part is not type(None)], hint, default, at)
    if dataclasses.is_dataclass(hint):
        start = default if isinstance(default, hint) else _empty(hint, value, at)  # type: ignore[arg-type]
        return overlay(start, value, at)
    if origin is Literal:
        words = {str(word): word for word in get_args(hint)}
        if isinstance(value, bool) or str(value) not in words:  # YAML takes 32 for a number
            raise SettingError(f"{at} must be one of {', '.join(words)}, got {shown(value)}")
        return words[str(value)]
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SettingError(f"{at} must be a list such as [1, 2], got {shown(value)}")
        return tuple(_convert(item, get_args(hint)[0], None, at) for item in value)
    if origin in (dict, Mapping) or hint is Mapping or origin is types.MappingProxyType:
        if not isinstance(value, Mapping):
            raise SettingError(f"{at} must be a mapping, got {shown(value)}")
        return {**(default or {}), **value}
    return _primitive(value, hint, at)


def _optional(value: Any, parts: list[Any], hint: Any, default: Any, at: str) -> Any:
    if value is None:
        if type(None) not in get_args(hint):
            raise SettingError(f"{at} must not be empty")
        return None
    return _convert(value, parts[0], default, at)


def _empty(kind: Any, value: Any, at: str) -> Any:
    """A dataclass that has no default to start from, of the values of its required fields."""
    required = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if not isinstance(value, Mapping) or name not in value]
    if missing:
        raise SettingError(f"{at} needs {' and '.join(missing)}")
    hints = get_type_hints(kind)
    return kind(**{name: _convert(value[name], hints[name], None, f"{at}.{name}") for name in required})


def _primitive(value: Any, kind: Any, at: str) -> Any:
    if kind is float and not isinstance(value, bool):
        try:
            return float(value)  # also of "1e-3", which YAML takes for a word
        except (TypeError, ValueError, OverflowError):
            pass
    elif kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    elif kind is Any or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    raise SettingError(f"{at} must be {names.get(kind, kind)}, got {shown(value)}")
