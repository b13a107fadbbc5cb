"""`remix data prepare`: find a data set, fetch it if it can be fetched, check it, and index it."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from remix.data.archives import is_archive, unpack
from remix.data.checks import check_official
from remix.data.download import Report, check_md5, fetch
from remix.data.errors import DataError, MissingData
from remix.data.file_index import INDEX, fingerprint
from remix.data.images import ImageDataset, ImageFiles
from remix.data.registry import Entry, find_dataset, load, place_of
from remix.data.splits import Splits
from remix.support.files import write_text
from remix.support.text import printable

__all__ = ["prepare"]


def prepare(name: str, root: str | Path | None = None, console: Console | None = None) -> Splits:
    """Make sure that a data set is there, complete and as published.

    Official archives in the data folder are checked and unpacked; what is not there is downloaded if it can be. Where
    images are single files, each is decoded once and the result is kept in remix-index.json beside them, so that
    ``load`` need not do it again.

    Args:
        name: of a data set, or the path of an image folder.
        root: the data folder; None means the one that REMIX_DATA names.
        console: for progress; None means none is shown.

    Raises:
        MissingData: if it is not there and cannot be fetched; the message says what to put where.
        DataError: if what is there is damaged or not the official data set.

    """
    console = console or Console(quiet=True)
    name, base = place_of(name, root, create=True)
    entry = find_dataset(name)
    options = {"lazy": True} if "lazy" in inspect.signature(entry.read).parameters else {}
    try:
        with console.status(f"looking for {entry.name}"):
            splits = load(name, base, **options)
    except MissingData:
        if base is None or not _obtain(entry, base, console):
            raise
        with console.status(f"reading {entry.name}"):
            splits = load(name, base, **options)
    index = splits.source / INDEX if splits.source is not None else None
    if index is not None and index.exists():  # what it says is to be found out anew
        try:
            index.unlink()
        except OSError as error:
            raise DataError(
                f"{printable(index)} cannot be removed ({error.strerror}), and is to be made anew"
            ) from error
        with console.status(f"reading {entry.name} again"):
            splits = load(name, base, **options)
    with console.status(f"checking {entry.name}"):
        check_official(entry, splits)
    if index is not None:
        try:
            write_text(index, json.dumps(_index(splits), indent=1) + "\n")
        except OSError as error:
            note = f"no index was written to {printable(index.parent)} ({error.strerror}): reading takes longer"
            console.print(note, soft_wrap=True, markup=False)
    return splits


def _obtain(entry: Entry, base: Path, console: Console) -> bool:
    """Unpack official archives that are in the data folder, or download them; whether there was anything to do."""
    for archive in entry.archives:
        if (base / archive.file).is_file() and not (base / entry.downloads[0].file).is_file():
            with console.status(f"checking and unpacking {archive.file}"):
                check_md5(base / archive.file, archive)
                unpack(base / archive.file, base)
            return True
    for download in entry.downloads:
        if (base / download.file).is_file() and not is_archive(download.file):
            continue  # its content is checked with that of the others, however it was packed
        with _progress(console, download.file) as report:
            file = fetch(download, base, report)
        if is_archive(file):
            with console.status(f"unpacking {download.file}"):
                unpack(file, base)
    return bool(entry.downloads)


@contextmanager
def _progress(console: Console, label: str) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _index(splits: Splits) -> dict[str, object]:
    """What is written down: counts, and for single files which of them can be used."""
    parts = _parts(splits)
    found: dict[str, object] = {
        "format": 1,
        "dataset": splits.name,
        "images": {part: len(data) for part, data in parts.items()},
        "classes": {part: data.counts() for part, data in parts.items()},
    }
    files = [path for data in parts.values() if isinstance(data.images, ImageFiles) for path in data.images.paths]
    if files and splits.source is not None:
        unusable = {os.path.relpath(one.path, splits.source): one.reason for one in splits.skipped}
        everything = files + [one.path for one in splits.skipped]
        found |= {"fingerprint": fingerprint(splits.source, everything), "unusable": unusable}
    return found


def _parts(splits: Splits) -> dict[str, ImageDataset]:
    parts = {"train": splits.train, "test": splits.test}
    return parts if splits.validation is None else parts | {"validation": splits.validation}
