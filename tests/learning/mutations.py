"""Damaged and forged model files, from a sound one. Every mutation is drawn from a seeded generator."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

NAMES = ["../../etc/passwd", "/dev/zero", "\x00", "\x1b[2J\x07", "a\nb", "\u202egnp", "__reduce__", "x" * 100_000, ""]
NUMBERS = [-1, 0, 1, 2**31, 2**63, 10**18, 10**400, -(10**30), 0.5, 1e308, math.nan, math.inf, -math.inf]
HOSTILE = [None, True, [], {}, [[]] * 1000, {"__class__": "os.system"}, *NAMES, *NUMBERS]


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The outer header and the bytes of the tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: str | bytes, body: bytes, length: int | None = None) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def forged(outer: dict[str, Any], inner: str, body: bytes) -> bytes:
    """A file whose inner header has a sound checksum, as an attacker makes it."""
    told = {"remix": inner, "remix-sha256": hashlib.sha256(inner.encode()).hexdigest()}
    return joined(json.dumps({**outer, "__metadata__": told}), body)


# --- JSON ---


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def change_json(value: Any, draw: random.Random) -> Any:
    """The value with one to three random places changed."""
    root = [json.loads(json.dumps(value))]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        *above, last = draw.choice(places(root)[1:])
        parent: Any = root
        for key in above:
            parent = parent[key]
        _change_at(parent, last, draw)
        if not root:
            return None
    return root[0]


def _change_at(parent: Any, key: Any, draw: random.Random) -> None:
    value, kind = parent[key], draw.randrange(7)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[draw.choice(NAMES)] = parent.pop(key)
    elif kind == 2 and isinstance(value, list):
        parent[key] = value * draw.choice((2, 100))
    elif kind == 3 and isinstance(value, int) and abs(value) < 2**64:
        parent[key] = draw.choice((value + 1, value - 1, -value, value * 10**6, float(value), str(value)))
    elif kind == 4:
        parent[key] = _nested(value, draw.choice((1, 50, 400)))
    elif kind == 5 and isinstance(value, str) and value:
        place = draw.randrange(len(value))
        parent[key] = value[:place] + draw.choice(NAMES)[:3] + value[place + 1 :]
    else:
        parent[key] = draw.choice(HOSTILE)


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _twice(text: str, draw: random.Random) -> str:
    """JSON text in which one object has its first name twice."""
    starts = [i for i, letter in enumerate(text) if letter == "{" and text[i + 1 : i + 2] == '"']
    start = draw.choice(starts)
    name = text[start + 1 : text.index('"', start + 2) + 1]
    return f"{text[: start + 1]}{name}: 0, {text[start + 1 :]}"


# --- files ---


def flip_bits(data: bytes, _: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(len(data)) if draw.random() < 0.5 else draw.randrange(min(len(data), 4000))
        changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut_or_grow(data: bytes, _: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    return draw.choice(
        (
            lambda: data[:place],
            lambda: data[place:],
            lambda: data + draw.randbytes(draw.choice((1, 4096))),
            lambda: data[:place] + data[place + draw.choice((1, 8, 100)) :],
            lambda: data[:place] + draw.randbytes(16) + data[place:],
            lambda: bytes(len(data)),
        )
    )()


def change_outer(data: bytes, _: bytes, draw: random.Random) -> bytes:
    """What safetensors reads: names, dtypes, shapes and places of tensors."""
    outer, body = split(data)
    kind = draw.randrange(6)
    if kind == 0:
        return joined(json.dumps(outer), body, draw.choice((0, 1, 7, 2**20, 2**31, 2**40, 2**63, 2**64 - 1)))
    if kind == 1:
        return joined(_twice(json.dumps(outer), draw), body)
    if kind == 2:
        return joined(
            draw.choice((b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe{}", b"nullnull", b" " * 50_000)), body
        )
    if kind == 3:  # claims terabytes
        name = draw.choice([name for name in outer if name != "__metadata__"])
        start = draw.choice((0, outer[name]["data_offsets"][0]))
        side = draw.choice((2**20, 2**40, 2**62))
        outer[name] = {
            "dtype": "F32",
            "shape": [side, draw.choice((0, 1, side))],
            "data_offsets": [start, start + side],
        }
        return joined(json.dumps(outer), body)
    return joined(json.dumps(change_json(outer, draw)), body)


def change_inner(data: bytes, _: bytes, draw: random.Random) -> bytes:
    """What the package reads, with sound checksums."""
    outer, body = split(data)
    told = json.loads(outer["__metadata__"]["remix"])
    kind = draw.randrange(12)
    if kind == 0:
        return forged(outer, _twice(json.dumps(told), draw), body)
    if kind == 1:
        return forged(
            outer, draw.choice(("[" * 100_000, "null", "{}", "NaN", '"', '{"kind":' * 5000, "1" * 9000)), body
        )
    if kind == 2:
        return forged(outer, json.dumps(change_json(told, draw)), body)
    key = draw.choice(list(told["content"]))
    told["content"][key] = change_json(told["content"][key], draw)
    return forged(outer, json.dumps(told), body)


def change_tensors(data: bytes, _: bytes, draw: random.Random) -> bytes:
    """Other numbers, dtypes, shapes and names, with sound checksums."""
    outer, _body = split(data)
    tensors = dict(load(data))
    told = json.loads(outer["__metadata__"]["remix"])
    for _ in range(draw.choice((1, 1, 3))):
        name = draw.choice(list(tensors))
        found = _other_tensor(tensors.pop(name), draw)
        tensors[draw.choice((name, name, name, f"{name}/..", draw.choice(NAMES)[:200], "photos"))] = found
    told["checksums"] = {name: _checksum(tensor) for name, tensor in tensors.items()}
    inner = json.dumps(told)
    return save(tensors, {"remix": inner, "remix-sha256": hashlib.sha256(inner.encode()).hexdigest()})


def _other_tensor(tensor: Tensor, draw: random.Random) -> Tensor:
    changes: list[Callable[[], Tensor]] = [
        lambda: torch.full_like(tensor.float(), draw.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 1e38, 1e-45))),
        lambda: tensor.to(draw.choice((torch.float64, torch.float16, torch.int8, torch.bool, torch.complex64))),
        lambda: tensor.reshape(-1)[:-1].clone(),
        lambda: tensor[None].clone(),
        lambda: torch.zeros(0, 2**40),
        lambda: torch.zeros(()),
        lambda: torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8),
        lambda: torch.cat([tensor.reshape(-1)] * 2),
    ]
    return draw.choice(changes)()


def _checksum(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def splice(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Parts of two files, or of a file and something foreign."""
    outer, body = split(data)
    outer2, body2 = split(other)
    place, place2 = draw.randrange(len(data)), draw.randrange(len(other))
    return draw.choice(
        (
            lambda: data[:place] + other[place2:],
            lambda: data[:place] + other[place:],
            lambda: joined(json.dumps(outer), body2),
            lambda: joined(json.dumps({**outer, **outer2}), body + body2),
            lambda: joined(json.dumps({**outer2, "__metadata__": outer["__metadata__"]}), body2),
            lambda: b"PK\x03\x04" + data,
            lambda: b"\x80\x04cos\nsystem\n(S'false'\ntR." + data[place:],
            lambda: data + other,
        )
    )()


KINDS = {
    flip_bits: 450,
    cut_or_grow: 250,
    change_outer: 400,
    change_inner: 650,
    change_tensors: 250,
    splice: 200,
}
"""Kinds of mutations, and how many files of each."""
