"""Unpack archives so that nothing can be written outside the folder, and nothing half unpacked is left in it."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from remix.data.errors import DataError
from remix.support.text import printable

__all__ = ["is_archive", "unpack"]

_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")


def is_archive(file: str | Path) -> bool:
    """Whether a file is to be unpacked, by its name."""
    return str(file).endswith(_ENDINGS)


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack a zip or tar file into a folder: what now lies there that was in the archive at its top.

    It is unpacked beside its place and moved there when complete. What exists already is not touched.

    Raises:
        DataError: if the archive is damaged, names a file outside the folder, holds links or devices that point out of
            it, does not fit on the disk, or would replace something.

    """
    try:
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as space:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as opened:
                    _unpack_zip(opened, archive, Path(space))
            else:
                with tarfile.open(archive) as tar:
                    _unpack_tar(tar, archive, Path(space))
            names = sorted(os.listdir(space))
            if taken := [name for name in names if (folder / name).exists()]:
                raise DataError(
                    f"{printable(folder / taken[0])} exists already but is not complete; remove it, then "
                    f"{printable(archive)} will be unpacked"
                )
            return [Path(shutil.move(Path(space, name), folder / name)) for name in names]
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{printable(archive)} is damaged ({error}); fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot unpack {printable(archive)} into {printable(folder)}: {error}") from error


def _unpack_zip(opened: zipfile.ZipFile, archive: Path, space: Path) -> None:
    for member in opened.infolist():
        path = PurePosixPath(member.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in member.filename:
            raise DataError(f"{printable(archive)} was not unpacked: it names {printable(member.filename)}")
    _check_space(sum(member.file_size for member in opened.infolist()), archive, space)
    opened.extractall(space)


def _unpack_tar(tar: tarfile.TarFile, archive: Path, space: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise DataError("unpacking safely needs a newer Python: 3.10.12, 3.11.4, or 3.12 and later")
    _check_space(sum(member.size for member in tar), archive, space)
    try:
        tar.extractall(space, filter="data")
    except tarfile.FilterError as error:
        raise DataError(f"{printable(archive)} was not unpacked: {printable(str(error))}") from error


def _check_space(wanted: int, archive: Path, space: Path) -> None:
    free = shutil.disk_usage(space).free
    if wanted > free:
        raise DataError(
            f"{printable(archive)} unpacks to {wanted / 1e9:.1f} GB and {printable(space.parent)} has "
            f"{free / 1e9:.1f} GB free"
        )
