"""`remix data prepare`: find a data set, fetch it if it can be fetched, check it, and index it."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from remix.data.archives import is_archive, unpack
from remix.data.download import Report, check_md5, fetch
from remix.data.errors import DataError, MissingData
from remix.data.file_lists import INDEX, fingerprint
from remix.data.images import ImageDataset, ImageFiles, Splits
from remix.data.registry import Entry, find_dataset, load, place_of
from remix.support.files import write_text
from remix.support.text import printable

__all__ = ["Watcher", "check_official", "content_digest", "prepare"]


@dataclass(frozen=True)
class Watcher:
    """How `prepare` tells what it is doing; by default not at all.

    Attributes:
        step: called with what takes a while; gives a context that lasts as long.
        download: the same for the name of a file that is fetched; in the context, called with bytes.
        note: called with a sentence for the person.

    """

    step: Callable[[str], AbstractContextManager[object]] = nullcontext
    download: Callable[[str], AbstractContextManager[Report]] = lambda file: nullcontext(lambda done, total: None)
    note: Callable[[str], None] = lambda text: None


_SILENT = Watcher()


def prepare(name: str, root: str | Path | None = None, watcher: Watcher = _SILENT) -> Splits:
    """Make sure that a data set is there, complete and as published.

    Official archives in the data folder are checked and unpacked; what is not there is downloaded if it can be. Where
    images are single files, each is decoded once and the result is kept in remix-index.json beside them, so that
    ``load`` need not do it again.

    Args:
        name: of a data set, or the path of an image folder.
        root: the data folder; None means the one that REMIX_DATA names.
        watcher: for progress; by default none is shown.

    Raises:
        MissingData: if it is not there and cannot be fetched; the message says what to put where.
        DataError: if what is there is damaged or not the official data set.

    """
    name, base = place_of(name, root, create=True)
    entry = find_dataset(name)
    options = {"lazy": True} if "lazy" in inspect.signature(entry.read).parameters else {}
    try:
        with watcher.step(f"looking for {entry.name}"):
            splits = load(name, base, **options)
    except MissingData:
        if base is None or not _obtain(entry, base, watcher):
            raise
        with watcher.step(f"reading {entry.name}"):
            splits = load(name, base, **options)
    index = splits.source / INDEX if splits.source is not None else None
    if index is not None and index.exists():  # what it says is to be found out anew
        try:
            index.unlink()
        except OSError as error:
            raise DataError(
                f"{printable(index)} cannot be removed ({error.strerror}), and is to be made anew"
            ) from error
        with watcher.step(f"reading {entry.name} again"):
            splits = load(name, base, **options)
    with watcher.step(f"checking {entry.name}"):
        check_official(entry, splits)
    if entry.classes is not None and len(splits.here) < entry.classes:
        watcher.note(
            f"this is a part of {entry.name}: {len(splits.here)} of {entry.classes} classes, each of them whole; a run "
            "that asks for another class is refused"
        )
    if index is not None:
        try:
            write_text(index, json.dumps(_index(splits, index.parent), indent=1) + "\n")
        except OSError as error:
            where = printable(index.parent)
            watcher.note(f"no index was written to {where} ({error.strerror}): reading takes longer")
    return splits


def _obtain(entry: Entry, base: Path, watcher: Watcher) -> bool:
    """Unpack official archives that are in the data folder, or download them; whether there was anything to do."""
    for archive in entry.archives:
        if (base / archive.file).is_file() and not (base / entry.downloads[0].file).is_file():
            with watcher.step(f"checking and unpacking {archive.file}"):
                check_md5(base / archive.file, archive)
                unpack(base / archive.file, base)
            return True
    for download in entry.downloads:
        if (base / download.file).is_file() and not is_archive(download.file):
            continue  # its content is checked with that of the others, however it was packed
        with watcher.download(download.file) as report:
            file = fetch(download, base, report)
        if is_archive(file):
            with watcher.step(f"unpacking {download.file}"):
                unpack(file, base)
    return bool(entry.downloads)


def check_official(entry: Entry, splits: Splits) -> None:
    """Compare with the official numbers of images, in all and of every class, and the official pixels.

    Of a data set whose classes have files of their own some may be there, each as official.

    Raises DataError if they differ.
    """
    where = printable(splits.source) if splits.source else entry.name
    if entry.classes_here is not None and entry.counts and len(splits.here) < len(splits.classes) == entry.classes:
        for part, data, official in zip(("training", "test"), (splits.train, splits.test), entry.counts, strict=True):
            _check_class_counts(entry.name, where, part, data.relabelled(_labels(splits)), official / entry.classes)
        return
    if entry.counts is not None:
        found = len(splits.train), len(splits.test)
        if found != entry.counts:
            raise DataError(
                f"{where} has {found[0]:,} training and {found[1]:,} test images; {entry.name} has "
                f"{entry.counts[0]:,} and {entry.counts[1]:,}. Remove it and fetch it again"
            )
    if entry.counts is not None and entry.classes is not None:
        if len(splits.classes) != entry.classes:
            raise DataError(f"{where} has {len(splits.classes)} classes; {entry.name} has {entry.classes}")
        _check_class_counts(entry.name, where, "training", splits.train, len(splits.train) / entry.classes)
        _check_class_counts(entry.name, where, "test", splits.test, len(splits.test) / entry.classes)
    if entry.content is not None and content_digest(splits.train, splits.test) != entry.content:
        raise DataError(
            f"the pixels or labels in {where} are not those of the official {entry.name}. Remove it and fetch it again"
        )


def _labels(splits: Splits) -> list[int]:
    return [splits.train.label_of(name) for name in splits.here]


def _check_class_counts(name: str, where: str, part: str, data: ImageDataset, each: float) -> None:
    """Where images can be divided evenly among the classes, they are; where not, every class has some."""
    for label, found in data.counts().items():
        if not found or (each.is_integer() and found != each):
            expected = f"{each:,.0f}" if each.is_integer() else "some"
            raise DataError(
                f"the class {label} has {found:,} {part} images in {where}; in {name} it has {expected}. "
                "Remove it and fetch it again"
            )


def content_digest(train: ImageDataset, test: ImageDataset) -> str:
    """SHA-256 over all pixels and labels of data in memory; the same for every layout and order of the images."""
    whole = hashlib.sha256()
    for part in (train, test):
        images, labels = part.batch(range(len(part)))
        rows = images.flatten(1).numpy()
        each = sorted(
            hashlib.sha256(b"%d " % label + row.tobytes()).digest()
            for label, row in zip(labels.tolist(), rows, strict=True)
        )
        whole.update(b"".join(each))
    return whole.hexdigest()


def _index(splits: Splits, folder: Path) -> dict[str, object]:
    """What is written down: counts, and for single files which of them can be used."""
    parts = splits.parts
    found: dict[str, object] = {
        "format": 1,
        "dataset": splits.name,
        "images": {part: len(data) for part, data in parts.items()},
        "classes": {part: data.counts() for part, data in parts.items()},
    }
    files = [path for data in parts.values() if isinstance(data.images, ImageFiles) for path in data.images.paths]
    if files:
        found["fingerprint"] = fingerprint(folder, files + [one.path for one in splits.skipped])
        found["unusable"] = {os.path.relpath(one.path, folder): one.reason for one in splits.skipped}
    return found
