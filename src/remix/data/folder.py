"""Any folder of photographs, one sub-folder per class, as a data set."""

from __future__ import annotations

from pathlib import Path

from remix.data.errors import DataError, left_out
from remix.data.file_parts import read_parts
from remix.data.folder_scan import scan
from remix.data.normalisation import IMAGENET, Normalisation
from remix.data.preprocessing import Preprocessing
from remix.data.registry import dataset
from remix.data.splits import Splits, hold_out
from remix.support.text import printable

__all__ = ["folder"]


@dataset("folder", place="one sub-folder of images per class (cat/, dog/, ...), or train/cat/ and test/cat/")
def folder(
    root: Path,
    size: int = 224,
    channels: int = 3,
    holdout: float = 0.2,
    seed: int = 0,
    lazy: bool | None = None,
    normalisation: Normalisation | None = None,
) -> Splits:
    """Your images, one sub-folder per class; type the path instead.

    With sub-folders train and test (or val) those are the parts, otherwise a fraction of every class is held out.
    Every file is decoded once; those that cannot be used are left out and listed in ``Splits.skipped``.

    Args:
        root: the folder.
        size: height and width in pixels: the shorter side is resized, the middle kept.
        channels: 3 for RGB, 1 for grey.
        holdout: fraction of every class for the test part, where the folder has none.
        seed: of that split.
        lazy: decode again each time (True), keep the pixels in memory (False), or by size: up to 1 GiB in memory.
        normalisation: of the channels; that of ImageNet if not given (its grey average for one channel).

    Raises:
        MissingData, DataError: see :func:`remix.data.folder_scan.scan`; also for a class of which no file is usable.

    """
    if normalisation is None:
        grey = Normalisation((sum(IMAGENET.mean) / 3,), (sum(IMAGENET.std) / 3,))
        normalisation = IMAGENET if channels == 3 else grey
    preprocessing = Preprocessing(size, channels, normalisation.mean, normalisation.std)
    found = scan(root)
    listed = {
        part: [(path, label) for label, files in enumerate(by_class) for path in files]
        for part, by_class in found.parts.items()
    }
    parts, skipped = read_parts(root, listed, found.classes, preprocessing, lazy)
    if empty := [name for name, count in parts["train"].counts().items() if not count]:
        unusable = {path for path, label in listed["train"] if found.classes[label] in empty}
        why = "; ".join(left_out((one for one in skipped if one.path in unusable), names=3, reasons=5))
        raise DataError(f"no usable training image of {', '.join(empty)} in {printable(root)}: {why}")
    if "test" not in parts:
        parts["train"], parts["test"] = hold_out(parts["train"], holdout, seed)
    name = root.resolve().name or "folder"
    skipped += found.skipped
    return Splits(parts["train"], parts["test"], normalisation, name, parts.get("validation"), tuple(skipped), root)
