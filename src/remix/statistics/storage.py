"""Files of tensors with a JSON header: written whole or not at all, checked when read, never pickled."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from remix.support.documents import DocumentError, parse_json
from remix.support.files import open_regular, written_whole
from remix.support.machine import out_of_memory

__all__ = ["DamagedFileError", "FileHeader", "StoredTensor", "read_file", "read_header", "serialised", "write_file"]

_HEADER = "remix"
_CHECKSUM = "remix-sha256"
_LONGEST_HEADER = 16 << 20  # bytes: thousands of classes and layers need a tenth of it


class DamagedFileError(ValueError):
    """A file that is damaged, foreign, or of another version; the message says which."""


class StoredTensor(NamedTuple):
    """What a header says of a tensor: its dtype in the words of safetensors ("F32"), its shape, its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class FileHeader:
    """What a file says of itself before any tensor is read.

    Attributes:
        version: of the format of its kind.
        content: what was given to `write_file`.
        tensors: by name, without their numbers.
        checksum: SHA-256 of the header. It holds those of all tensors, so it stands for the whole file.

    """

    version: int
    content: Any
    tensors: dict[str, StoredTensor]
    checksum: str


def write_file(path: str | Path, kind: str, version: int, tensors: Mapping[str, Tensor], content: Any) -> None:
    """Write tensors and a JSON-able ``content`` to one safetensors file.

    It is there whole or not at all, also after a crash; equal arguments give equal bytes.

    Args:
        path: the file.
        kind: what it holds, such as "memory"; a reader asks for it.
        version: of the format of this kind.
        tensors: by name.
        content: what describes them; must be plain JSON.

    Raises:
        ValueError: if the description is too long for `read_file` to accept it.
        OSError: if it cannot be written; ``path`` is unchanged then.

    """
    data = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sums = {name: _checksum(tensor) for name, tensor in data.items()}
    header = json.dumps({"kind": kind, "version": version, "checksums": sums, "content": content}, sort_keys=True)
    payload = serialised(data, {_HEADER: header, _CHECKSUM: hashlib.sha256(header.encode()).hexdigest()})
    length = int.from_bytes(payload[:8], "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"the description of {path} would take {length:,} bytes, at most {_LONGEST_HEADER:,}")
    with written_whole(path) as file:
        file.write(payload)


def serialised(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a safetensors file, the same for equal arguments: the library orders metadata at random."""
    payload = save(dict(tensors), dict(metadata))
    end = 8 + int.from_bytes(payload[:8], "little")
    header = json.loads(payload[8:end])
    text = json.dumps(header, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8, as the library has them
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(payload)[end:]))


def read_header(path: str | Path, kind: str, version: int, oldest: int | None = None) -> FileHeader:
    """Read what a file says of itself, and no tensor. Arguments and errors as those of `read_file`."""
    with _opened(path, kind) as file:
        return _checked_header(Path(path), file, kind, version, oldest)[0]


def read_file(path: str | Path, kind: str, version: int, oldest: int | None = None) -> tuple[dict[str, Tensor], Any]:
    """Read what `write_file` wrote, on the CPU.

    What is allocated is bounded by the size of the file: safetensors checks every shape against it.

    Args:
        path: the file.
        kind: that it must be of.
        version: of the format that it must have.
        oldest: the first version that is read too; by default only ``version`` is.

    Returns:
        tensors by name, and the content.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFileError: if it is no such file, another kind or version, or any byte of header or tensors has changed.

    """
    with _opened(path, kind) as file:
        header, sums = _checked_header(Path(path), file, kind, version, oldest)
        tensors = {name: file.get_tensor(name) for name in header.tensors}
        for name, tensor in tensors.items():
            if _checksum(tensor) != sums[name]:
                raise DamagedFileError(f"{path} is damaged: the checksum of {name[:80]!r} does not fit its numbers")
    return tensors, header.content


@contextmanager
def _opened(path: str | Path, kind: str) -> Iterator[Any]:
    """A safetensors file whose outer header is of a sane length and names nothing twice."""
    path = Path(path)
    try:
        _check_outer(path)
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no file {path}") from error
    except DamagedFileError:
        raise
    # Besides its own error the library raises what Python's readers raise on what is not a safetensors file.
    except (SafetensorError, RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
        if out_of_memory(error):
            raise
        raise DamagedFileError(f"{path} is no {kind} file: it is damaged, cut short, or of another format") from error


def _check_outer(path: Path) -> None:
    """Other readers may take the first or the last of two equal names: a file must not look different to them."""
    with open_regular(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        try:
            parse_json(file.read(length))
        except DocumentError as error:
            raise DamagedFileError(f"{path} is damaged: its header is {error}") from error


def _checked_header(
    path: Path, file: Any, kind: str, version: int, oldest: int | None
) -> tuple[FileHeader, dict[str, str]]:
    """The header of an open file, and the checksums of its tensors."""
    metadata = file.metadata()
    header = _header(path, metadata, kind)
    found, first = header["version"], version if oldest is None else oldest
    if type(found) is not int or not first <= found <= version:
        reads = f"version {version}" if first == version else f"versions {first} to {version}"
        newer = "; a newer remix wrote it" if type(found) is int and found > version else ""
        raise DamagedFileError(
            f"{path} has format version {repr(found)[:20]} of {kind!r}, this remix reads {reads}{newer}"
        )
    sums = header["checksums"]
    if not isinstance(sums, dict):
        raise DamagedFileError(f"{path} is damaged: its header lists no checksums")
    if set(file.keys()) != set(sums):
        raise DamagedFileError(f"{path} is damaged: its tensors are not those its header lists")
    tensors = {name: _stored(file.get_slice(name)) for name in file.keys()}  # noqa: SIM118 (not a dict)
    return FileHeader(found, header["content"], tensors, metadata[_CHECKSUM]), sums


def _header(path: Path, metadata: Mapping[str, str] | None, kind: str) -> dict[str, Any]:
    if not metadata or _HEADER not in metadata:
        raise DamagedFileError(f"{path} is a safetensors file, but not one that remix wrote")
    text = metadata[_HEADER]
    if metadata.get(_CHECKSUM) != hashlib.sha256(text.encode()).hexdigest():
        raise DamagedFileError(f"{path} is damaged: the checksum of its header does not fit")
    try:
        header = parse_json(text)
    except DocumentError as error:
        raise DamagedFileError(f"{path} is damaged: its header is {error}") from error
    if not isinstance(header, dict) or not {"kind", "version", "checksums", "content"} <= set(header):
        raise DamagedFileError(f"{path} is damaged: its header lacks what every remix file has")
    if header["kind"] != kind:
        raise DamagedFileError(f"{path} holds {str(header['kind'])[:40]!r}, expected {kind!r}")
    return header


def _stored(part: Any) -> StoredTensor:
    shape, dtype = tuple(part.get_shape()), str(part.get_dtype())
    bits = int("".join(filter(str.isdigit, dtype.partition("_")[0])) or 8)  # "F32", "BF16", "F8_E4M3", "BOOL"
    return StoredTensor(dtype, shape, bits * math.prod(shape) // 8)


def _checksum(tensor: Tensor) -> str:
    """Of dtype, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()
