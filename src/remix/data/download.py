"""Fetch a file over HTTP: continued where it broke off, and checked before it gets its name."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remix.data.errors import DataError, MissingData
from remix.data.registry import Download
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["check_md5", "fetch"]

Report = Callable[[int, int | None], None]
"""Told after each piece: bytes so far, and bytes in all if the server says."""

_ATTEMPTS = 3
_PIECE = 2**18
_LARGEST = 2**32  # bytes; the largest official file has 1.2 billion
_WEB = ("http", "https")


class _WithinTheWeb(urllib.request.HTTPRedirectHandler):
    """Does not let a server send us elsewhere than to the web: the library would follow to FTP."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in _WEB:
            raise ValueError(f"it sends us to {newurl[:200]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(download: Download, folder: Path, report: Report = lambda done, total: None, patience: float = 1.0) -> Path:
    """Download into ``folder / download.file`` and check it; a file that is there already is only checked.

    What arrives is kept in FILE.part, and the next attempt, or the next call, asks the server for the rest. After an
    attempt that brought nothing it waits ``patience`` seconds, then twice as long.

    Raises:
        MissingData: if it cannot be fetched; the message says what to put where instead.
        DataError: if what was fetched is not the official file, or cannot be stored.

    """
    target = folder / download.file
    if target.is_file():
        check_md5(target, download)
        return target
    if urlsplit(download.url).scheme not in _WEB:
        raise DataError(f"only http and https are fetched, not {download.url}")
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
    except OSError as error:
        raise DataError(f"cannot write to {printable(part.parent)}: {error.strerror}") from error
    for path in (part, target):
        if path.exists() and not path.is_file():
            raise DataError(f"{printable(path)} is in the way, and not a file; remove it")
    fruitless, most = 0, part.stat().st_size
    while (problem := _attempt(download.url, part, report)) is not None:
        size = part.stat().st_size
        fruitless, most = (1, size) if size > most else (fruitless + 1, most)
        if fruitless >= _ATTEMPTS or isinstance(problem, urllib.error.HTTPError | ValueError):
            kept = "What arrived is kept, and the next attempt goes on from there; or fetch"
            if not size:
                kept = "Fetch"
                part.unlink()
            raise MissingData(
                f"cannot download {download.url} ({printable(_reason(problem))}). {kept} {target.name} elsewhere and "
                f"put it at {printable(target)}"
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
    """Raise DataError unless the file has the official MD5: publishers give it to tell damage, not attacks."""
    digest = hashlib.md5(usedforsecurity=False)
    with open_regular(file) as stream:
        while chunk := stream.read(2**20):
            digest.update(chunk)
    if (found := digest.hexdigest()) != download.md5:
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
        opener = urllib.request.build_opener(_WithinTheWeb)
        with opener.open(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            if answer.status != 206:  # the server sends the whole file whatever was asked
                start = 0
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length and length.isdecimal() else None
            return _append(answer, part, start, total, report)
    except urllib.error.HTTPError as error:
        # 416: there is nothing after what we have; the checksum will tell whether that is the file.
        return None if error.code == 416 else error
    except DataError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        return error  # URLError and timeouts are OSErrors; addresses and lengths that are none are ValueErrors


def _append(
    answer: http.client.HTTPResponse, part: Path, start: int, total: int | None, report: Report
) -> Exception | None:
    done = start
    with part.open("r+b", buffering=0) as stream:  # what arrived is on disk when the process is killed
        if stream.seek(0, os.SEEK_END) > start:
            stream.truncate(start)
        stream.seek(start)
        # read1, not read: a chunk of negative length would be read whole, however long.
        while (total is None or done < total) and (piece := answer.read1(_PIECE)):
            done += len(piece)
            if max(done, total or 0) > _LARGEST:
                stream.truncate(0)
                raise ValueError(f"it sends more than {_LARGEST:,} bytes, and no official file has so many")
            _write(stream, piece, part)
            report(done, total)
        os.fsync(stream.fileno())
    return None if total is None or done >= total else ConnectionError(f"broke off after {done:,} of {total:,} bytes")


def _write(stream: FileIO, piece: bytes, part: Path) -> None:
    try:
        while piece:
            piece = piece[stream.write(piece) :]
    except OSError as error:
        raise DataError(
            f"cannot write {printable(part)}: {error.strerror}. Make room and type the same again to go on from there"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection: {error.reason}"
    if isinstance(error, ValueError):
        return f"the server's answer makes no sense: {error}"
    return str(error) or type(error).__name__
