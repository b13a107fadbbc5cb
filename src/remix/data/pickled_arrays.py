"""Reads the pickle files of CIFAR as data, without Python's unpickler: nothing in them can be executed.

A pickle is a program for a stack machine. This one knows the instructions that build numbers, strings, lists, tuples,
dicts and numpy arrays of numbers, and no others. Names of functions are only compared with the few that such arrays
need; none is ever looked up.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remix.data.errors import DataError
from remix.support.text import printable

__all__ = ["read_pickled"]

_LARGE = 2**16  # longer byte strings stay views of the file's buffer: they are pixels


class _Refused(Exception):
    """The stream holds something that CIFAR files do not."""


@dataclass(frozen=True)
class _Name:
    """A function or class that the stream names; one of `_KNOWN`."""

    kind: str


@dataclass
class _Dtype:
    """A numpy dtype under construction."""

    code: str


class _Array:
    """A numpy array under construction."""


_KNOWN = {
    **dict.fromkeys(
        [("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")], _Name("array")
    ),
    **dict.fromkeys([("numpy.core.numeric", "_frombuffer"), ("numpy._core.numeric", "_frombuffer")], _Name("buffer")),
    ("numpy", "ndarray"): _Name("ndarray"),
    ("numpy", "dtype"): _Name("dtype"),
    ("_codecs", "encode"): _Name("encode"),
}


def read_pickled(file: Path) -> Any:
    """The dict, list, numbers, byte strings and arrays in a pickle file, zero-copy for large arrays.

    Raises:
        DataError: if the file is damaged, or holds anything else, such as a call.

    """
    data = bytearray(file.stat().st_size)
    with file.open("rb") as stream:
        stream.readinto(data)
    try:
        return _Machine(memoryview(data)).run()
    except _Refused as error:
        raise DataError(
            f"{printable(file)} was not opened: {error}. The official files hold only numbers and text; fetch it again"
        ) from None
    except (struct.error, IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{printable(file)} is damaged, or not a file of this data set; fetch it again") from error


class _Machine:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self.take(1)[0]
            if code == ord("."):
                return self.stack.pop()
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise _Refused(f"it uses the pickle instruction {chr(code)!r}, which plain arrays do not need")
            instruction(self)

    def take(self, count: int) -> memoryview:
        """The next bytes of the stream."""
        piece = self.data[self.at : self.at + count]
        if len(piece) < count:
            raise _Refused("it ends too early")
        self.at += count
        return piece

    def number(self, layout: str) -> int:
        """A little-endian whole number."""
        return int(struct.unpack("<" + layout, self.take(struct.calcsize(layout)))[0])

    def line(self) -> str:
        """The next line of text."""
        end = self.at
        while self.data[end] != ord("\n"):
            end += 1
        text = bytes(self.take(end - self.at)).decode("ascii")
        self.at += 1
        return text

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def bytes(self, count: int) -> None:
        piece = self.take(count)
        self.push(piece if count > _LARGE else bytes(piece))

    def marked(self) -> list[Any]:
        """Everything above the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def tuple(self, count: int) -> None:
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(items)

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _Refused("it appends to something that is not a list")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise _Refused("it sets items of something that is not a dict")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def pair(self) -> list[Any]:
        """The two topmost values."""
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]

    def name(self, module: str, name: str) -> None:
        if (module, name) not in _KNOWN:
            raise _Refused(f"it asks for {module}.{name}")
        self.push(_KNOWN[module, name])

    def call(self) -> None:
        function, arguments = self.pair()
        kind = function.kind if isinstance(function, _Name) else ""
        if kind == "array":
            self.push(_Array())
        elif kind == "buffer":
            raw, dtype, shape, order = arguments
            self.push(_array(shape, dtype, order == "F", raw))
        elif kind == "dtype" and isinstance(arguments[0], (str, bytes)):
            self.push(_Dtype(_text(arguments[0])))
        elif kind == "encode" and arguments[1] == "latin1":
            self.push(arguments[0].encode("latin1"))
        else:
            raise _Refused("it calls something that plain arrays do not need")

    def build(self) -> None:
        target, state = self.pair()
        if isinstance(target, _Dtype):
            target.code = _text(state[1]).replace("|", "") + target.code.lstrip("<>|=")
            self.push(target)
        elif isinstance(target, _Array):
            _, shape, dtype, fortran, raw = state
            self.push(_array(shape, dtype, bool(fortran), raw))
        else:
            raise _Refused("it sets the state of something that is not an array")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("ascii")


def _array(shape: Any, dtype: Any, fortran: bool, raw: Any) -> np.ndarray[Any, Any]:
    if not isinstance(dtype, _Dtype) or not re.fullmatch(r"[<>=]?[buif][1248]", dtype.code):
        raise _Refused("it holds an array of something else than numbers")
    if not isinstance(raw, (bytes, memoryview)) or any(not isinstance(n, int) or n < 0 for n in shape):
        raise _Refused("it holds an array without contents")
    code = np.dtype(dtype.code)
    if math.prod(shape) * code.itemsize != len(raw):
        raise _Refused(f"an array of shape {shape} does not fit its {len(raw):,} bytes")
    array = np.frombuffer(raw, code).reshape(shape, order="F" if fortran else "C")
    return array if array.flags.writeable else array.copy()


def _put(machine: _Machine, key: int) -> None:
    machine.memo[key] = machine.stack[-1]


_Instruction = Callable[[_Machine], Any]
_INSTRUCTIONS: dict[int, _Instruction] = {
    0x80: lambda m: m.take(1),  # protocol
    0x95: lambda m: m.take(8),  # frame
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("}"): lambda m: m.push({}),
    ord("]"): lambda m: m.push([]),
    ord(")"): lambda m: m.push(()),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("K"): lambda m: m.push(m.number("B")),
    ord("M"): lambda m: m.push(m.number("H")),
    ord("J"): lambda m: m.push(m.number("i")),
    0x8A: lambda m: m.push(int.from_bytes(m.take(m.number("B")), "little", signed=True)),
    ord("U"): lambda m: m.bytes(m.number("B")),
    ord("T"): lambda m: m.bytes(m.number("I")),
    ord("C"): lambda m: m.bytes(m.number("B")),
    ord("B"): lambda m: m.bytes(m.number("I")),
    0x8E: lambda m: m.bytes(m.number("Q")),
    0x96: lambda m: m.bytes(m.number("Q")),
    0x8C: lambda m: m.push(str(m.take(m.number("B")), "utf-8")),
    ord("X"): lambda m: m.push(str(m.take(m.number("I")), "utf-8")),
    ord("t"): lambda m: m.push(tuple(m.marked())),
    0x85: lambda m: m.tuple(1),
    0x86: lambda m: m.tuple(2),
    0x87: lambda m: m.tuple(3),
    ord("a"): lambda m: m.extend([m.stack.pop()]),
    ord("e"): lambda m: m.extend(m.marked()),
    ord("s"): lambda m: m.update(m.pair()),
    ord("u"): lambda m: m.update(m.marked()),
    ord("q"): lambda m: _put(m, m.number("B")),
    ord("r"): lambda m: _put(m, m.number("I")),
    0x94: lambda m: _put(m, len(m.memo)),
    ord("h"): lambda m: m.push(m.memo[m.number("B")]),
    ord("j"): lambda m: m.push(m.memo[m.number("I")]),
    ord("c"): lambda m: m.name(m.line(), m.line()),
    0x93: lambda m: m.name(*m.pair()),
    ord("R"): lambda m: m.call(),
    ord("b"): lambda m: m.build(),
}
