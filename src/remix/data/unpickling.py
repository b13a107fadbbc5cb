"""What a child process runs on a pickle file of CIFAR, ``python -I -S unpickling.py KEY < FILE``: see `cifar_files`.

Every name in the pickle is looked up among a few classes of this file, so that nothing else can be called. That does
not make a pickle safe to read: nested tuples as a key overflow the interpreter's stack, and a short file can ask for
any amount of time or memory. Hence the process of its own, with limits. It imports only the standard library, to start
in no time.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from array import array
from typing import Any, BinaryIO

__all__ = ["PIXELS", "RefusedPickle", "unpickle"]

PIXELS = 3 * 32 * 32
_MEMORY, _COPIES = 2**30, 4  # address space: so many bytes, and so many times the file
_SECONDS = 20  # of processor time; the official files take one


class RefusedPickle(ValueError):
    """A pickle that is not one of CIFAR; the message comes after the file's name."""


class _Array:
    """What a numpy array is pickled as."""

    shape: Any = None
    dtype: Any = None
    fortran: Any = False
    raw: Any = None

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, self.fortran, self.raw = state


class _Buffer(_Array):
    """The same since protocol 5."""

    def __init__(self, raw: object, dtype: object, shape: object, order: object) -> None:
        self.__setstate__((1, shape, dtype, order == "F", raw))


class _Dtype:
    """The type of its numbers."""

    code: Any = None

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """The order of bytes, which single bytes do not have."""


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.numeric", "_frombuffer"): _Buffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): str.encode,  # how Python 3 writes bytes for Python 2; takes nothing but text
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            asked = f"{module[:60]}.{name[:60]}".encode("ascii", "backslashreplace").decode()
            raise RefusedPickle(f"was not opened: it asks for {asked}")
        return known


def unpickle(stream: BinaryIO, label_key: str) -> tuple[bytes, bool, array[int]]:
    """Pixels of N images, whether they are in Fortran's order, and N labels, from a pickled dict.

    Nothing in the pickle is executed, but a hostile one can end the interpreter, or keep it busy for ever. What holds
    anything else raises RefusedPickle.
    """
    try:
        content = _Unpickler(stream, encoding="bytes").load()
    except RefusedPickle:
        raise
    except Exception as error:  # the unpickler raises whatever the damage leads to
        raise RefusedPickle("is damaged or cut off") from error
    if type(content) is not dict or any(type(key) not in (str, bytes) for key in content):
        raise RefusedPickle("is not a table with names")
    found = {key if isinstance(key, str) else key.decode("latin1"): value for key, value in content.items()}
    raw, fortran = _pixels(found.get("data"))
    labels = found.get(label_key)
    if type(labels) is not list or len(labels) * PIXELS != len(raw):
        raise RefusedPickle(f"has no label for each image under {label_key!r}")
    try:
        return raw, fortran, array("q", labels)
    except (TypeError, OverflowError) as error:
        raise RefusedPickle(f"has labels under {label_key!r} that are not whole numbers") from error


def _pixels(value: Any) -> tuple[bytes, bool]:
    """The bytes of a pickled array of uint8, (N, 3072), and whether they are in Fortran's order."""
    if isinstance(value, _Array) and isinstance(value.dtype, _Dtype) and value.dtype.code in ("u1", b"u1"):
        raw = value.raw
        if type(raw) in (bytes, bytearray) and raw and value.shape == (len(raw) / PIXELS, PIXELS):
            return raw, bool(value.fortran)
    raise RefusedPickle(f"has no images (N, {PIXELS}) under 'data'")


def _limit_this_process() -> None:
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        memory = _MEMORY + _COPIES * os.fstat(sys.stdin.fileno()).st_size
        for what, most in (("AS", memory), ("CPU", _SECONDS), ("CORE", 0), ("FSIZE", 0)):
            with contextlib.suppress(ValueError, OSError):  # macOS refuses the first; one that is lower already stays
                resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))


def _main() -> None:
    """Write one line of JSON, then the labels as int64 and the pixels, or a line with the reason why not."""
    _limit_this_process()
    out = sys.stdout.buffer
    try:
        raw, fortran, labels = unpickle(sys.stdin.buffer, sys.argv[1])
    except RefusedPickle as error:
        out.write(json.dumps({"refused": str(error)}).encode() + b"\n")
        return
    out.write(json.dumps({"images": len(labels), "fortran": fortran}).encode() + b"\n")
    out.write(labels.tobytes())
    out.write(raw)


if __name__ == "__main__":
    _main()
