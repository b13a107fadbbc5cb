"""The embedded digits as folders of PNG files, to try commands on: ``python -m remix.data.digit_files FOLDER``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from PIL import Image
from torch import Tensor

from remix.data.errors import DataError
from remix.data.registry import load

__all__ = ["write_digits"]

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STEPS = {"first": range(5), "more": range(5, 7), "last": range(7, 10)}
_EACH = 60  # images to learn from, per class


def write_digits(root: str | Path) -> None:
    """Write ``root/first`` (zero to four), ``more`` (five, six), ``last`` (seven to nine) and ``test`` (all of them).

    Every class has 60 images to learn from; those in ``test`` are others.

    Raises:
        DataError: if there is something at ``root`` already.
        OSError: if it cannot be written.

    """
    root = Path(root)
    if root.exists():
        raise DataError(f"{root} exists already: choose another folder")
    splits = load("digits")
    for step, labels in STEPS.items():
        for label in labels:
            chosen = (splits.train.labels == label).nonzero()[:_EACH, 0]
            _write(root / step / NAMES[label], splits.train.batch(chosen)[0])
    for label, name in enumerate(NAMES):
        chosen = (splits.test.labels == label).nonzero()[:, 0]
        _write(root / "test" / name, splits.test.batch(chosen)[0])


def _write(folder: Path, images: Iterable[Tensor]) -> None:
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(folder / f"{number:03}.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("type: python -m remix.data.digit_files FOLDER")
    try:
        write_digits(sys.argv[1])
    except (DataError, OSError) as error:
        sys.exit(str(error))
    print(f"wrote {', '.join(f'{sys.argv[1]}/{step}' for step in (*STEPS, 'test'))}")
