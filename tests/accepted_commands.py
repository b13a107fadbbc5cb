"""Whether a command would be understood, found out without running it."""

from __future__ import annotations

import argparse
import inspect
import re
import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from unittest.mock import MagicMock

import pytest

from remix.cli import COMMANDS
from remix.cli.parser import build_parser
from remix.experiments.config import resolve
from remix.experiments.own_data import is_folder
from remix.experiments.sweep import parse_seeds, sweep_jobs
from remix.networks import list_backbones
from remix.reproduce import TARGETS

PARSER = build_parser(COMMANDS)
_ELSEWHERE = {"rm", "tensorboard"}  # programs of others


def check_accepted(words: list[str], root: Path) -> None:
    """Raise if a command would be refused: SystemExit by a parser, else AssertionError or ValueError.

    Of a command with ``...`` in it only its name and its options are looked at.
    """
    if words[0] == "remix":
        (_check_options if "..." in words else _check_remix)(words[1:])
    elif words[:2] == ["python", "-m"]:
        _check_module(words[2], [word for word in words[3:] if word != "..."])
    elif words[0] == "python":
        assert (root / words[1]).is_file(), f"there is no {words[1]}"
    elif words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        missing = [name for name in targets if f"\n{name}:" not in (root / "Makefile").read_text("utf-8")]
        assert not missing, f"the Makefile has no {missing}"
    elif words[:2] == ["pip", "install"]:
        _check_pip(words[2:], (root / "pyproject.toml").read_text("utf-8"))
    elif words[0] == "source":
        assert words[1:] == [".venv/bin/activate"], words
    else:
        assert words[0] in _ELSEWHERE, f"nobody knows {words[0]}"


def _check_remix(words: list[str]) -> None:
    chosen = PARSER.parse_args(words)
    given: dict[str, Any] = vars(chosen)
    name = given.pop("command")
    for key, hint in get_type_hints(COMMANDS[name]).items():
        allowed = next((get_args(part) for part in (hint, *get_args(hint)) if get_origin(part) is Literal), None)
        if allowed and given[key] is not None:
            assert given[key] in allowed, f"{key} is {given[key]!r}, and there are {allowed}"
    if name == "run":
        preset = "digits" if is_folder(given["preset"]) else given["preset"]
        resolve(preset, method=given["method"], seed=given["seed"], assignments=given["set"] or ())
    elif name == "sweep":
        sweep_jobs(given["preset"], given["set"] or (), parse_seeds(given["seeds"]), given["out"], given["data"], False)
    elif name == "reproduce":
        assert given["target"] in (None, *TARGETS), f"{given['target']!r} is no target"
    if given.get("backbone"):
        assert given["backbone"] in list_backbones() or given["backbone"].startswith("hf:"), (
            f"{given['backbone']!r} is no backbone"
        )


def _check_options(words: list[str]) -> None:
    parameters = inspect.signature(COMMANDS[words[0]]).parameters
    options = {f"--{name.replace('_', '-')}" for name in parameters}
    unknown = [word for word in words if word.startswith("--") and word not in options]
    assert not unknown, f"remix {words[0]} has no {unknown}"


class _Understood(Exception):
    """The words were parsed; nothing more is wanted."""


def _check_module(name: str, words: list[str]) -> None:
    if name == "remix.data.digit_files":  # one folder, no parser
        assert len(words) == 1
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *given: Any) -> None:
        parse(parser, *given)
        raise _Understood

    with pytest.MonkeyPatch.context() as patch, suppress(_Understood):
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        patch.setattr(sys, "argv", [name, *words])
        if "transformers" not in sys.modules:  # takes seconds, and has no part in any option
            patch.setitem(sys.modules, "transformers", MagicMock())
        runpy.run_module(name, run_name="__main__")
        raise AssertionError(f"{name} has no parser")


def _check_pip(words: list[str], project: str) -> None:
    for word in words:
        package = re.fullmatch(r"(?:remix-dfcil|\.)\[([a-z,]+)\]", word)
        if package:
            for extra in package[1].split(","):
                assert f"\n{extra} = [" in project, f"pyproject.toml has no extra {extra!r}"
        else:
            assert word in (".", "-e", "-c", "constraints.txt", "--force-reinstall", "--no-deps"), word
