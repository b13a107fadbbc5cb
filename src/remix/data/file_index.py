"""`remix-index.json`: that the files of a folder were all decoded once, so that it need not be done at every start."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remix.support.documents import read_json
from remix.support.text import printable

__all__ = ["INDEX", "fingerprint", "known_unusable"]

INDEX = "remix-index.json"


def fingerprint(source: Path, paths: Iterable[Path]) -> str:
    """Changes when a file is added, removed, renamed or written to, not with their order. Reads no contents.

    Folders, which change with whatever is written into them, do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(paths, key=os.fsencode):
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                continue
            size, time = status.st_size, status.st_mtime_ns
        except OSError:
            size, time = -1, -1
        digest.update(os.fsencode(os.path.relpath(path, source)) + b"\0%d %d\n" % (size, time))
    return digest.hexdigest()


def known_unusable(source: Path, paths: Iterable[Path]) -> dict[Path, str] | None:
    """Files that the index says cannot be used, with reasons; None if there is no index of just these files."""
    try:
        index: Any = read_json(source / INDEX)
        if index["fingerprint"] != fingerprint(source, paths):
            return None
        return {source / name: printable(str(reason)) for name, reason in index["unusable"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
