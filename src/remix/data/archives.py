"""Unpack archives so that nothing can be written outside the folder, and nothing half unpacked is left in it."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple

from remix.data.errors import DataError
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["is_archive", "unpack"]

_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")
_MOST_MEMBERS, _DEEPEST = 1_000_000, 20
_LARGEST, _FOLD = 2**24, 50  # bytes to which any archive may unpack, and times its own size: photographs shrink little


class _Refused(Exception):
    """An archive that is not unpacked; the message says why."""


class _Member(NamedTuple):
    """A file or folder in an archive, or neither: a link or a device."""

    name: str
    is_file: bool
    is_folder: bool
    size: int
    open: Callable[[], IO[bytes] | None]


def is_archive(file: str | Path) -> bool:
    """Whether a file is to be unpacked, by its name."""
    return str(file).endswith(_ENDINGS)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip or tar file into a folder.

    It is unpacked beside its place and moved there when complete. What exists already is not touched. Files and folders
    are made here, not by the standard library, whose filters have let links lead outside.

    Raises DataError if the archive is damaged, names a file outside the folder, holds links or devices, does not fit on
    the disk, unpacks to many times its size, or would replace something.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as space:
            with open_regular(archive) as stream:
                _write_all(_members(stream, archive), Path(space), os.fstat(stream.fileno()).st_size)
            names = sorted(os.listdir(space))
            if taken := [name for name in names if os.path.lexists(folder / name)]:
                raise DataError(
                    f"{printable(folder / taken[0])} exists already but is not complete; remove it, then "
                    f"{printable(archive)} will be unpacked"
                )
            for name in names:
                shutil.move(Path(space, name), folder / name)
    except DataError:
        raise
    except _Refused as error:
        raise DataError(f"{printable(archive)} was not unpacked: {printable(str(error))}") from error
    except Exception as error:  # the standard library raises whatever the damage leads to
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise DataError(f"cannot unpack {printable(archive)} into {printable(folder)}: {error}") from error
        raise DataError(f"{printable(archive)} is damaged; fetch it again") from error


def _members(stream: BinaryIO, archive: Path) -> Iterator[_Member]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(stream) as opened:
            for entry in opened.infolist():
                is_plain = stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
                is_file, is_folder = is_plain and not entry.is_dir(), is_plain and entry.is_dir()
                yield _Member(entry.filename, is_file, is_folder, entry.file_size, partial(opened.open, entry))
    else:
        with tarfile.open(fileobj=stream, mode="r:" if archive.suffix == ".tar" else "r:gz") as tar:
            for info in tar:
                is_file = info.isreg() and not info.issparse()
                yield _Member(info.name, is_file, info.isdir(), info.size, partial(tar.extractfile, info))


def _write_all(members: Iterator[_Member], space: Path, size: int) -> None:
    """Write an archive of so many bytes, within the bounds of what such archives hold and of the disk."""
    free, most = shutil.disk_usage(space).free, _LARGEST + _FOLD * size
    total = 0
    for number, member in enumerate(members, start=1):
        if not (member.is_file or member.is_folder):
            raise _Refused(f"{member.name} in it is a link or a device, not a file or folder")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or len(path.parts) > _DEEPEST or set(member.name) & set("\\:\0"):
            raise _Refused(f"it names {member.name[:200]}")
        total += member.size
        if member.size < 0 or total > most or number > _MOST_MEMBERS:
            raise _Refused("it claims to hold far more than fits into it")
        if total > free:
            raise _Refused(f"it unpacks to more than the {free / 1e9:.1f} GB free in {space.parent}")
        (space / path if member.is_folder else space / path.parent).mkdir(parents=True, exist_ok=True)
        if member.is_file:
            _write(member, space / path)


def _write(member: _Member, path: Path) -> None:
    source = member.open()
    assert source is not None  # what a tar file gives for folders
    with source, path.open("xb") as target:
        shutil.copyfileobj(source, target, 2**20)
        if target.tell() != member.size:
            raise _Refused(f"{member.name} in it has {target.tell():,} of {member.size:,} bytes; fetch it again")
