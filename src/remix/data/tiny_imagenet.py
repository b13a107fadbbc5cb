"""Tiny-ImageNet-200: training images in a folder per class, annotated validation images as the test part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from remix.data.errors import DataError
from remix.data.file_lists import read_lines, read_parts, read_table
from remix.data.images import Splits
from remix.data.preprocessing import Normalisation, Preprocessing
from remix.data.registry import Download, dataset, missing
from remix.support.text import printable

__all__ = ["tiny_imagenet"]

NORMALISATION = Normalisation((0.4803, 0.4481, 0.3976), (0.2764, 0.2688, 0.2816))


def _folder(root: Path) -> Path | None:
    return next((f for f in (root / "tiny-imagenet-200", root) if (f / "wnids.txt").is_file()), None)


def _classes_here(root: Path) -> int:
    folder = _folder(root)
    return 0 if folder is None else sum(_images(folder, wnid).is_dir() for wnid in read_lines(folder / "wnids.txt"))


def _images(folder: Path, wnid: str) -> Path:
    return folder / "train" / (wnid if wnid.isalnum() else "") / "images"  # a name, not a path


@dataset(
    "tiny-imagenet",
    place="tiny-imagenet-200/ with wnids.txt, train/ and val/ (val_annotations.txt and images/)",
    downloads=(
        Download(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
    counts=(100_000, 10_000),
    classes=200,
    classes_here=_classes_here,
)
def tiny_imagenet(root: Path, lazy: bool | None = None) -> Splits:
    """110,000 photographs of 200 classes, 64 x 64.

    Labels are lines of wnids.txt; the annotated validation images are the test part. Some of the classes will do: the
    others keep their numbers and have no images.

    Args:
        root: the data folder, or tiny-imagenet-200 itself.
        lazy: decode each time (True) or keep the pixels in memory, 1.35 GB (False); by size if not given, so True.

    """
    folder = _folder(root)
    if folder is None:
        raise missing("tiny-imagenet", root)
    ids = read_lines(folder / "wnids.txt")
    label = {wnid: position for position, wnid in enumerate(ids)}
    train = [(path, label[wnid]) for wnid in ids for path in sorted(_images(folder, wnid).glob("*.JPEG"))]
    here = {found for _, found in train}
    test = []
    for name, wnid in (row[:2] for row in read_table(folder / "val" / "val_annotations.txt", columns=2)):
        if wnid not in label or Path(name).name != name:
            raise DataError(f"val_annotations.txt in {printable(folder)} has a line {name} {wnid} of no class or file")
        if label[wnid] in here:
            test.append((folder / "val" / "images" / name, label[wnid]))
    if not train or not test:
        raise missing("tiny-imagenet", root)
    preprocessing = Preprocessing(64, 3, NORMALISATION.mean, NORMALISATION.std)
    parts, skipped = read_parts(folder, {"train": train, "test": test}, _names(folder, ids), preprocessing, lazy)
    return Splits(parts["train"], parts["test"], NORMALISATION, "tiny-imagenet", skipped=tuple(skipped), source=folder)


def _names(folder: Path, ids: list[str]) -> tuple[str, ...]:
    """The first word for each class, with its id where two classes share that word, or the id where it has no word."""
    words: dict[str, str] = {}
    if (folder / "words.txt").is_file():
        words = {wnid: text.split(",")[0] for wnid, text in read_table(folder / "words.txt", columns=2, separator="\t")}
    plain = [words.get(wnid, wnid) for wnid in ids]
    times = Counter(plain)
    return tuple(f"{name} ({wnid})" if times[name] > 1 else name for name, wnid in zip(plain, ids, strict=True))
