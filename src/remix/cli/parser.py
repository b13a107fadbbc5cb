"""From plain functions with typed arguments and docstrings to the parser of a command line, by jsonargparse."""

from __future__ import annotations

import inspect
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import docstring_parser
from jsonargparse import ArgumentParser, DefaultHelpFormatter

from remix._version import __version__

__all__ = ["build_parser"]


class _Formatter(DefaultHelpFormatter):
    """Keeps paragraphs and the lines of examples apart, and says of an argument only what its note says."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n\n".join(super(_Formatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))

    def _get_help_string(self, action: Any) -> str:
        note = action.help or ""
        plain = isinstance(action.default, int | float | str) and not isinstance(action.default, bool)
        return f"{note} (default: {action.default})" if plain and "==SUPPRESS==" not in str(action.default) else note


def build_parser(functions: Mapping[str, Callable[..., None]]) -> ArgumentParser:
    """The parser of `remix`, one sub-command per function."""
    parser = ArgumentParser(
        prog="remix",
        description="Teach an image classifier new classes without the data of the old ones.",
        version=__version__,
        formatter_class=_Formatter,
    )
    commands = parser.add_subcommands(title="commands", metavar="command", description="remix COMMAND --help says more")
    for name, function in functions.items():
        about = docstring_parser.parse(function.__doc__ or "")
        commands.add_subcommand(name, _command_parser(function, about), help=about.short_description)
    return parser


def _command_parser(function: Callable[..., None], about: docstring_parser.Docstring) -> ArgumentParser:
    """Parameters before the ``*`` are typed without their name, those after it are options.

    An option that defaults to False is a switch: `--json`, not `--json true`. A list takes several words.
    """
    examples = [line for example in about.examples for line in (example.description or "").splitlines()]
    command = ArgumentParser(
        description="\n\n".join(filter(None, [about.short_description, about.long_description])),
        epilog="examples:\n" + "\n".join(f"  {line.strip()}" for line in examples) if examples else None,
        formatter_class=_Formatter,
    )
    hints = get_type_hints(function)
    notes = {note.arg_name: note.description for note in about.params}
    for key, parameter in inspect.signature(function).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        settings: dict[str, Any] = (
            {"help": notes[key]} if required else {"help": notes[key], "default": parameter.default}
        )
        flag = f"--{key.replace('_', '-')}"
        positional = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        if get_origin(_plain(hints[key])) is list:
            settings |= {"nargs": "+"} if positional else {"nargs": "+", "action": "extend"}
            command.add_argument(key if positional else flag, type=str, **settings)
        elif positional:
            choices = _choices(hints[key])
            kind = {"type": str, "choices": list(choices)} if choices else {"type": _kind(hints[key])}
            command.add_argument(key, nargs=None if required else "?", **kind, **settings)
        elif parameter.default is False:
            command.add_argument(flag, action="store_true", help=notes[key])
        else:
            choices = _choices(hints[key])
            if choices:  # only shown: the command itself refuses other words, in a sentence
                settings["metavar"] = "{" + ",".join(choices) + "}"
            command.add_argument(flag, type=str if choices else _kind(hints[key]), required=required, **settings)
    return command


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a number, got {text!r}") from None


def _kind(hint: Any) -> Any:
    """What makes a value of a word, and says in words what it should have been."""
    kinds = [part for part in get_args(hint) if part is not type(None)] or [hint]
    return {int: _whole_number, float: _number}.get(kinds[0], hint)


def _choices(hint: Any) -> tuple[str, ...]:
    """The words of a Literal, also of an optional one."""
    parts = [hint, *get_args(hint)]
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def _plain(hint: Any) -> Any:
    """The type without "or None"."""
    return next((part for part in get_args(hint) if get_origin(part) is list), hint)
