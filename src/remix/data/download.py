"""Fetch a file over HTTP: continued where it broke off, and checked before it gets its name."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from urllib.parse import urlsplit

from remix.data.checks import md5_of
from remix.data.errors import DataError, MissingData
from remix.data.registry import Download
from remix.support.text import printable

__all__ = ["check_md5", "fetch"]

Report = Callable[[int, int | None], None]
"""Told after each piece: bytes so far, and bytes in all if the server says."""

_ATTEMPTS = 3
_PIECE = 2**18


def fetch(download: Download, folder: Path, report: Report = lambda done, total: None, patience: float = 1.0) -> Path:
    """Download into ``folder / download.file`` and check it; a file that is there already is only checked.

    What arrives is kept in FILE.part, and the next attempt, or the next call, asks the server for the rest.

    Args:
        download: what.
        folder: where.
        report: for a progress bar.
        patience: seconds to wait before the second attempt after one that brought nothing; doubles each time.

    Raises:
        MissingData: if it cannot be fetched; the message says what to put where instead.
        DataError: if what was fetched is not the official file, or cannot be stored.

    """
    target = folder / download.file
    if target.is_file():
        check_md5(target, download)
        return target
    if urlsplit(download.url).scheme not in ("http", "https"):
        raise DataError(f"only http and https are fetched, not {download.url}")
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
    except OSError as error:
        raise DataError(f"cannot write to {printable(part.parent)}: {error.strerror}") from error
    fruitless = 0
    while True:
        before = part.stat().st_size
        problem = _attempt(download.url, part, report)
        if problem is None:
            break
        fruitless = fruitless + 1 if part.stat().st_size == before else 1
        if fruitless >= _ATTEMPTS or isinstance(problem, urllib.error.HTTPError):
            kept = "What arrived is kept, and the next attempt goes on from there; or fetch"
            if not part.stat().st_size:
                kept = "Fetch"
                part.unlink()
            raise MissingData(
                f"cannot download {download.url} ({_reason(problem)}). {kept} {target.name} elsewhere and put it at "
                f"{printable(target)}"
            ) from problem
        time.sleep(patience * 2 ** (fruitless - 1))
    try:
        check_md5(part, download)
    except DataError:
        part.unlink()  # a damaged beginning would be continued for ever
        raise
    os.replace(part, target)
    return target


def check_md5(file: Path, download: Download) -> None:
    """Raise DataError unless the file has the official checksum."""
    if (found := md5_of(file)) != download.md5:
        raise DataError(
            f"{printable(file)} is not the official file: MD5 {found} instead of {download.md5}. "
            "Remove it and fetch it again"
        )


def _attempt(url: str, part: Path, report: Report) -> Exception | None:
    """Ask for what is missing and append it; the network's error, or None when all is there."""
    start = part.stat().st_size
    headers = {"User-Agent": "remix", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            if answer.status != 206:  # the server sends the whole file whatever was asked
                start = 0
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length and length.isdecimal() else None
            return _append(answer, part, start, total, report)
    except urllib.error.HTTPError as error:
        # 416: there is nothing after what we have; the checksum will tell whether that is the file.
        return None if error.code == 416 else error
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        return error


def _append(
    answer: http.client.HTTPResponse, part: Path, start: int, total: int | None, report: Report
) -> Exception | None:
    done = start
    with part.open("r+b", buffering=0) as stream:  # what arrived is on disk when the process is killed
        if stream.seek(0, os.SEEK_END) > start:
            stream.truncate(start)
        stream.seek(start)
        while piece := answer.read(_PIECE):
            _write(stream, piece, part)
            done += len(piece)
            report(done, total)
        os.fsync(stream.fileno())
    return None if total is None or done >= total else ConnectionError(f"broke off after {done:,} of {total:,} bytes")


def _write(stream: FileIO, piece: bytes, part: Path) -> None:
    try:
        while piece:
            piece = piece[stream.write(piece) :]
    except OSError as error:
        raise DataError(f"cannot write {printable(part)}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection: {error.reason}"
    return str(error) or type(error).__name__
