"""The embedded digits as folders of PNG files, to try commands on: ``python -m remix.data.digit_files FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

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
    for step, labels in (*STEPS.items(), ("test", range(10))):
        part, most = (splits.test, None) if step == "test" else (splits.train, _EACH)
        for label in labels:
            folder = root / step / NAMES[label]
            folder.mkdir(parents=True)
            chosen = (part.labels == label).nonzero()[:most, 0]
            for number, image in enumerate(part.batch(chosen)[0]):
                Image.fromarray(image[0].numpy()).save(folder / f"{number:03}.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("type: python -m remix.data.digit_files FOLDER")
    try:
        write_digits(sys.argv[1])
    except (DataError, OSError) as error:
        sys.exit(str(error))
    print(f"wrote {', '.join(f'{sys.argv[1]}/{step}' for step in (*STEPS, 'test'))}")
