"""From plain functions with typed arguments and docstrings to the parser of a command line."""

from __future__ import annotations

import inspect
import re
from argparse import Action, ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import docstring_parser

from remix._version import __version__
from remix.support.files import read_limited
from remix.support.text import did_you_mean, shown

__all__ = ["build_parser", "read_names", "read_numbers", "read_options", "split_words"]

_LONGEST_NAMES = 16 << 20  # bytes of a file of names


class _Formatter(HelpFormatter):
    """Keeps paragraphs and the lines of examples apart, and tells plain defaults."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n\n".join(super(_Formatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))

    def _get_help_string(self, action: Action) -> str:
        note = action.help or ""
        plain = isinstance(action.default, int | float | str) and not isinstance(action.default, bool)
        return f"{note} (default: {action.default})" if plain and "==SUPPRESS==" not in str(action.default) else note


class _Sentences(ArgumentParser):
    """Says what is wrong in one sentence, and where to read more."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help says more)\n")


class _Program(_Sentences):
    """All commands; one that does not exist is answered with the nearest."""

    commands: Mapping[str, Any] = {}

    def parse_known_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            close = did_you_mean(args[0], self.commands)
            self.error(f"there is no command {shown(args[0])}{close}; there are: {', '.join(self.commands)}")
        return super().parse_known_args(args, namespace)


class _Command(_Sentences):
    """A sub-command; options that it does not have are found before anything else is missed."""

    def parse_known_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        for word in args:
            option = word.partition("=")[0]
            if re.fullmatch(r"--[\w-]*[^\W\d_][\w-]*", option) and option not in self._option_string_actions:
                close = did_you_mean(option, (name for name in self._option_string_actions if name.startswith("--")))
                self.error(f"there is no option {option}{close}")
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"{shown(rest[0])} is one word too many")
        return found, rest


def build_parser(functions: Mapping[str, Callable[..., None]]) -> ArgumentParser:
    """The parser of `remix`, one sub-command per function; its name is in ``command``, its arguments beside it."""
    parser = _Program(
        prog="remix",
        description="Teach an image classifier new classes without the data of the old ones.",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.commands = functions
    parser.add_argument("--version", action="version", version=f"remix {__version__}")
    commands = parser.add_subparsers(
        title="commands",
        metavar="command",
        dest="command",
        required=True,
        description="remix COMMAND --help says more",
        parser_class=_Command,
    )
    for name, function in functions.items():
        about = docstring_parser.parse(function.__doc__ or "")
        examples = [line for example in about.examples for line in (example.description or "").splitlines()]
        command = commands.add_parser(
            name,
            help=about.short_description,
            description="\n\n".join(filter(None, [about.short_description, about.long_description])),
            epilog="examples:\n" + "\n".join(f"  {line.strip()}" for line in examples) if examples else None,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        _add_arguments(command, function, {note.arg_name: note.description for note in about.params})
    return parser


def _add_arguments(command: ArgumentParser, function: Callable[..., None], notes: Mapping[str, str | None]) -> None:
    """Parameters before the ``*`` are typed without their name, those after it are options.

    An option that defaults to False is a switch: `--json`, not `--json true`. A list takes several words. An option
    whose type is annotated with a value (``Annotated[float | None, 0.95]``) has that value when it is typed alone.
    """
    alone = {key: hint.__metadata__[0] for key, hint in _annotated(function).items()}
    hints = get_type_hints(function)
    for key, parameter in inspect.signature(function).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        settings: dict[str, Any] = {"help": notes[key]} | ({} if required else {"default": parameter.default})
        flag = f"--{key.replace('_', '-')}"
        choices = _choices(hints[key])
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            several = "+" if _is_list(hints[key]) else None if required else "?"
            kind = {"choices": list(choices)} if choices else {"type": _kind(hints[key])}
            command.add_argument(key, nargs=several, **kind, **settings)
        elif _is_list(hints[key]):
            command.add_argument(flag, nargs="+", action="extend", required=required, **settings)
        elif parameter.default is False:
            command.add_argument(flag, action="store_true", help=notes[key])
        elif key in alone:
            command.add_argument(flag, type=_kind(hints[key]), nargs="?", const=alone[key], **settings)
        else:
            if choices:  # only shown: the command itself refuses other words, in a sentence
                settings["metavar"] = "{" + ",".join(choices) + "}"
            command.add_argument(flag, type=str if choices else _kind(hints[key]), required=required, **settings)


def _annotated(function: Callable[..., None]) -> dict[str, Any]:
    hints = get_type_hints(function, include_extras=True)
    return {key: hint for key, hint in hints.items() if get_origin(hint) is Annotated}


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


def _kind(hint: Any) -> Callable[[str], Any]:
    """What makes a value of a word, and says in words what it should have been."""
    kinds = [part for part in get_args(hint) if part is not type(None)] or [hint]
    found: dict[Any, Callable[[str], Any]] = {int: _whole_number, float: _number}
    return found.get(kinds[0], str)


def _choices(hint: Any) -> tuple[str, ...]:
    """The words of a Literal, also of an optional one."""
    parts = [hint, *get_args(hint)]
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def _is_list(hint: Any) -> bool:
    """Also of an optional one."""
    return any(get_origin(part) is list for part in (hint, *get_args(hint)))


def split_words(text: str) -> list[str]:
    """What an option holds that takes several words separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def read_names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas, or from a file with one per line, or None. Raises ValueError if there are none."""
    if not text:
        return None
    path = Path(text)
    is_file = len(text) < 1000 and path.is_file()
    parts = read_limited(path, _LONGEST_NAMES).decode("utf-8").splitlines() if is_file else text.split(",")
    names = tuple(part.strip() for part in parts if part.strip())
    if not names:
        raise ValueError(f"{shown(text)} holds no names")
    return names


def read_numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas, or None. Raises ValueError naming the option."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{option} must be numbers separated by commas, got {shown(text)}") from error


def read_options(text: str | None) -> dict[str, Any]:
    """Options such as ``width=8,final_relu=true`` by name. Raises ValueError for a part without ``=``."""
    options: dict[str, Any] = {}
    for part in (text or "").split(","):
        key, sign, value = part.partition("=")
        if not part.strip():
            continue
        if not sign:
            raise ValueError(f"--options must look like width=8,final_relu=true, got {shown(text)}")
        options[key.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    from remix.support.documents import DocumentError, parse_json

    try:
        value = parse_json(text)
    except DocumentError:
        return text
    return value if isinstance(value, bool | int | float | str) else text
