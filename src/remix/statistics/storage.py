"""Files of tensors with a JSON header: written whole or not at all, checked when read, never pickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from remix.atomic import written_whole

__all__ = ["DamagedFileError", "read_file", "write_file"]

_HEADER = "remix"
_CHECKSUM = "remix-sha256"


class DamagedFileError(ValueError):
    """A file that is damaged, foreign, or of another version; the message says which."""


def write_file(path: str | Path, kind: str, version: int, tensors: Mapping[str, Tensor], content: Any) -> None:
    """Write tensors and a JSON-able ``content`` to one safetensors file.

    It is there whole or not at all, also after a crash.

    Args:
        path: the file.
        kind: what it holds, such as "memory"; a reader asks for it.
        version: of the format of this kind.
        tensors: by name.
        content: what describes them; must be plain JSON.

    Raises:
        OSError: if it cannot be written; ``path`` is unchanged then.

    """
    data = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sums = {name: _checksum(tensor) for name, tensor in data.items()}
    header = json.dumps({"kind": kind, "version": version, "checksums": sums, "content": content}, sort_keys=True)
    payload = save(data, {_HEADER: header, _CHECKSUM: hashlib.sha256(header.encode()).hexdigest()})
    with written_whole(path) as file:
        file.write(payload)


def read_file(path: str | Path, kind: str, version: int) -> tuple[dict[str, Tensor], Any]:
    """Read what `write_file` wrote, on the CPU.

    Returns:
        tensors by name, and the content.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFileError: if it is no such file, another kind or version, or any byte of header or tensors has changed.

    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        with safe_open(path, "pt") as file:
            header = _header(path, file.metadata(), kind, version)
            if set(file.keys()) != set(header["checksums"]):
                raise DamagedFileError(f"{path} is damaged: its tensors are not those its header lists")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except DamagedFileError:
        raise
    # Besides its own error the library raises what Python's readers raise on what is not a safetensors file.
    except (SafetensorError, RuntimeError, ValueError, TypeError, AttributeError, KeyError, MemoryError) as error:
        raise DamagedFileError(f"{path} is no {kind} file: it is damaged, cut short, or of another format") from error
    for name, tensor in tensors.items():
        if _checksum(tensor) != header["checksums"][name]:
            raise DamagedFileError(f"{path} is damaged: the checksum of {name!r} does not fit its numbers")
    return tensors, header["content"]


def _header(path: Path, metadata: Mapping[str, str] | None, kind: str, version: int) -> dict[str, Any]:
    if not metadata or _HEADER not in metadata:
        raise DamagedFileError(f"{path} is a safetensors file, but not one that remix wrote")
    text = metadata[_HEADER]
    if metadata.get(_CHECKSUM) != hashlib.sha256(text.encode()).hexdigest():
        raise DamagedFileError(f"{path} is damaged: the checksum of its header does not fit")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged: its header is not JSON") from error
    if not isinstance(header, dict) or not {"kind", "version", "checksums", "content"} <= set(header):
        raise DamagedFileError(f"{path} is damaged: its header lacks what every remix file has")
    if header["kind"] != kind:
        raise DamagedFileError(f"{path} holds {str(header['kind'])[:40]!r}, expected {kind!r}")
    if header["version"] != version:
        raise DamagedFileError(
            f"{path} has format version {str(header['version'])[:20]} of {kind!r}, this remix reads version {version}"
        )
    if not isinstance(header["checksums"], dict):
        raise DamagedFileError(f"{path} is damaged: its header lists no checksums")
    return header


def _checksum(tensor: Tensor) -> str:
    """Of dtype, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()
