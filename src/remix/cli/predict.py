"""`remix predict`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from remix.cli.output import Format, as_json, check_format, note, note_left_out, show
from remix.support.text import as_csv, as_table, printable

if TYPE_CHECKING:
    from pathlib import Path

    from remix.data import Skipped
    from remix.deploy.prediction import FilePredictions

__all__ = ["predict"]

_LONGEST_NAME = 1 << 16  # bytes; systems take far less
_COLUMNS = ("image", "rank", "label", "class", "probability")  # of CSV


def predict(
    model: str,
    images: list[str],
    *,
    format: Format = "table",
    top: int = 5,
    batch: int = 32,
    unknown: Annotated[float | None, 0.95] = None,
    device: str = "auto",
) -> None:
    """What a model says about photographs: the most probable classes of each.

    Folders are searched with the folders in them. Files that cannot be read are left out and listed at the end; the
    status is 1 if none could be read. Results go to standard output, everything else to standard error.

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it (NAME.remix).
        images: Image files and folders; - reads names of them from standard input, one per line.
        format: How results are printed: table, json, or csv (a line per image and class).
        top: How many classes to tell of each image, the most probable first.
        batch: Images that go through the network at a time; fewer take less memory.
        unknown: Call images of no class that the model knows unknown. The number is the share of images of its classes
            to keep, 0.95 without one: the more are kept, the fewer others are found.
        device: Where to compute: auto (a GPU if there is one), cpu, cuda, mps, ...

    Examples:
        remix predict photos.remix cat.jpg holiday/
        remix predict photos.remix holiday/ --unknown
        remix predict photos.remix holiday/ --top 1 --format csv > found.csv
        find . -newer last -name "*.jpg" | remix predict photos.remix - --format json
    """
    from remix.deploy.prediction import find_images, predict_files
    from remix.learning import load_model
    from remix.learning.team import as_device

    check_format(format)
    skipped: list[Skipped] = []
    opened = load_model(model).to(as_device(device))
    found = predict_files(opened, find_images(_places(images), skipped), top, batch, unknown)
    if format == "csv":
        count = _csv(found, skipped, unknown is not None)
    else:
        count = {"table": _table, "json": _json}[format](found, skipped, min(top, len(opened.classes)))
    if format != "json":
        note_left_out(skipped)
    if not count:
        note("no image was read")
        sys.exit(1)


def _places(images: Sequence[str]) -> Iterator[str]:
    for place in images:
        if place == "-":
            yield from _lines()
        else:
            yield place


def _lines() -> Iterator[str]:
    """Names on standard input, as the system spells them: they need not be UTF-8."""
    if sys.stdin is None:
        raise ValueError("'-' stands for names on standard input, which is closed: pipe names into it, or type them")
    while line := sys.stdin.buffer.readline(_LONGEST_NAME):
        if len(line) == _LONGEST_NAME:
            raise ValueError("standard input is not made of names, one per line: a line does not end")
        if line.strip():
            yield os.fsdecode(line.rstrip(b"\r\n"))


def _table(found: Iterator[FilePredictions], skipped: list[Skipped], top: int) -> int:
    """One line per image, printed batch by batch; in a terminal with as many classes as fit in a line."""
    head = ["image", "class", *(f"{place}." for place in range(2, top + 1))]
    count, fit = 0, top
    for part in found:
        skipped += part.skipped
        rows = []
        for image in _by_image(part):
            told = [f"{name} {100 * chance:.1f}%" for name, chance in zip(image.names, image.chances, strict=True)]
            if image.familiar is not None:
                told[0] = told[0] if image.known else f"unknown ({told[0]})"
                told.append(f"{100 * image.familiar:.1f}%")
            rows.append([printable(image.path), *told])
        if rows:
            heads = [*head, "familiar"] if part.predictions.familiar is not None else head
            if not count:
                fit = _fitting([heads, *rows], top)
            first, *others = ([*line[: fit + 1], *line[top + 1 :]] for line in (heads, *rows))
            text = as_table(first, others)
            show(text if not count else text.partition("\n")[2])
        count += len(rows)
    if fit < top:
        note(f"{fit} of the {top} most probable classes fit in a line; --format csv has all")
    return count


def _fitting(lines: Sequence[Sequence[str]], top: int) -> int:
    """How many of the ``top`` classes fit in the terminal (or COLUMNS), behind the image and before what follows."""
    width = shutil.get_terminal_size((0, 0)).columns
    sizes = [2 + max(map(len, column)) for column in zip(*lines, strict=True)]
    counts = range(top, 1, -1) if width else [top]
    return next((n for n in counts if not width or sum(sizes[: n + 1] + sizes[top + 1 :]) - 2 <= width), 1)


def _csv(found: Iterator[FilePredictions], skipped: list[Skipped], unknown: bool) -> int:
    """One line per image and class, printed batch by batch."""
    columns = (*_COLUMNS, "known", "familiar") if unknown else _COLUMNS
    show(",".join(columns))
    count = 0
    for part in found:
        skipped += part.skipped
        rows = [
            dict(zip(_COLUMNS, (printable(image.path), rank, label, name, f"{chance:.6f}"), strict=True))
            | ({} if image.familiar is None else {"known": int(image.known), "familiar": f"{image.familiar:.4f}"})
            for image in _by_image(part)
            for rank, (label, name, chance) in enumerate(zip(image.labels, image.names, image.chances, strict=True), 1)
        ]
        if rows:
            show(as_csv(rows).partition("\n")[2].rstrip("\n"))
        count += len(part.paths)
    return count


def _json(found: Iterator[FilePredictions], skipped: list[Skipped], _: int) -> int:
    images = []
    for part in found:
        skipped += part.skipped
        for image in _by_image(part):
            classes = [
                {"label": label, "class": name, "probability": round(chance, 6)}
                for label, name, chance in zip(image.labels, image.names, image.chances, strict=True)
            ]
            told = {} if image.familiar is None else {"known": image.known, "familiar": round(image.familiar, 4)}
            images.append({"image": printable(image.path), **told, "predictions": classes})
    left_out = [{"image": printable(one.path), "reason": one.reason} for one in skipped]
    show(as_json({"images": images, "skipped": left_out}))
    return len(images)


class _Image(NamedTuple):
    """What is said of one."""

    path: Path
    labels: list[int]
    names: tuple[str, ...]
    chances: list[float]
    known: bool
    familiar: float | None


def _by_image(part: FilePredictions) -> Iterator[_Image]:
    told = part.predictions
    known = [True] * len(told) if told.known is None else told.known.tolist()
    familiar = [None] * len(told) if told.familiar is None else told.familiar.tolist()
    columns = (part.paths, told.labels.tolist(), told.names, told.probabilities.tolist(), known, familiar)
    return map(_Image, *columns)
