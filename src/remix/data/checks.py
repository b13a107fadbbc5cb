"""Whether data are what they should be: checksums of files, counts, and of the pixels themselves."""

from __future__ import annotations

import hashlib
from pathlib import Path

from remix.data.errors import DataError
from remix.data.images import ImageDataset
from remix.data.registry import Entry
from remix.data.splits import Splits
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["check_official", "content_digest", "md5_of"]


def md5_of(file: Path) -> str:
    """MD5 of a file: what the publishers of these data sets give to tell damaged downloads, not attackers."""
    digest = hashlib.md5(usedforsecurity=False)
    with open_regular(file) as stream:
        while chunk := stream.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


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


def check_official(entry: Entry, splits: Splits) -> None:
    """Compare with the official numbers of images, in all and of every class, and the official pixels.

    Raises:
        DataError: if they differ; the message says how.

    """
    where = printable(splits.source) if splits.source else entry.name
    if entry.counts is not None:
        found = len(splits.train), len(splits.test)
        if found != entry.counts:
            raise DataError(
                f"{where} has {found[0]:,} training and {found[1]:,} test images; {entry.name} has "
                f"{entry.counts[0]:,} and {entry.counts[1]:,}. Remove it and fetch it again"
            )
        if entry.classes is not None:
            _check_classes(entry, splits, where)
    if entry.content is not None and content_digest(splits.train, splits.test) != entry.content:
        raise DataError(
            f"the pixels or labels in {where} are not those of the official {entry.name}. Remove it and fetch it again"
        )


def _check_classes(entry: Entry, splits: Splits, where: str) -> None:
    """Where images can be divided evenly among the classes, they are; where not, every class has some."""
    assert entry.counts is not None
    assert entry.classes is not None
    if len(splits.classes) != entry.classes:
        raise DataError(f"{where} has {len(splits.classes)} classes; {entry.name} has {entry.classes}")
    for part, data, total in zip(("training", "test"), (splits.train, splits.test), entry.counts, strict=True):
        each, uneven = divmod(total, entry.classes)
        counts = data.counts()
        for name in splits.classes:
            found = counts.get(name, 0)
            if not found or (not uneven and found != each):
                expected = "some" if uneven else f"{each:,}"
                raise DataError(
                    f"the class {name} has {found:,} {part} images in {where}; in {entry.name} it has {expected}. "
                    "Remove it and fetch it again"
                )
