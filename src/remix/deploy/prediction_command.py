"""`remix predict`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from remix.data import Skipped
from remix.deploy.output import as_csv, as_json, as_table, check_format, note, note_left_out, show
from remix.deploy.prediction_files import FilePredictions, find_images, predict_files
from remix.learning import load_model
from remix.learning.devices import as_device, on_device
from remix.support.text import printable

__all__ = ["predict_command"]

_LONGEST_NAME = 1 << 16  # bytes; systems take far less


def predict_command(
    model: str, images: Sequence[str], *, format: str = "table", top: int = 5, batch: int = 32, device: str = "auto"
) -> int:
    """Print what a model says about image files and folders; those that cannot be read are listed at the end.

    Args:
        model: the model file.
        images: files and folders; "-" stands for names of them on standard input, one per line.
        format: "table", "json" or "csv".
        top: classes per image.
        batch: images at a time.
        device: where it runs.

    Returns:
        the status of the command: 0, or 1 if no image could be read.

    Raises:
        ValueError: for an unknown format, a number below 1, or a file that is no model.
        OSError: if the model file cannot be read.

    """
    check_format(format)
    skipped: list[Skipped] = []
    opened = on_device(load_model(model), as_device(device))
    found = predict_files(opened, find_images(_places(images), skipped), top, batch)
    count = {"table": _table, "json": _json, "csv": _csv}[format](found, skipped, min(top, len(opened.classes)))
    if format != "json":
        note_left_out(skipped)
    if not count:
        note("no image was read")
    return 0 if count else 1


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
    """One line per image, printed batch by batch."""
    count = 0
    for part in found:
        skipped += part.skipped
        rows = [
            [printable(path), *_pairs(names, chances)]
            for path, names, chances in zip(
                part.paths, part.predictions.names, part.predictions.probabilities.tolist(), strict=True
            )
        ]
        if rows:
            head = ["image", "class", *(f"{place}." for place in range(2, top + 1))]
            text = as_table(head, rows)
            show(text if not count else text.partition("\n")[2])
        count += len(rows)
    return count


def _pairs(names: Sequence[str], chances: Sequence[float]) -> list[str]:
    return [f"{name} {100 * chance:.1f}%" for name, chance in zip(names, chances, strict=True)]


def _csv(found: Iterator[FilePredictions], skipped: list[Skipped], _: int) -> int:
    """One line per image and class, printed batch by batch."""
    head = ("image", "rank", "label", "class", "probability")
    show(",".join(head))
    count = 0
    for part in found:
        skipped += part.skipped
        rows = [
            (printable(path), rank + 1, label, name, f"{chance:.6f}")
            for path, labels, names, chances in _by_image(part)
            for rank, (label, name, chance) in enumerate(zip(labels, names, chances, strict=True))
        ]
        if rows:
            show(as_csv(head, rows).partition("\n")[2])
        count += len(part.paths)
    return count


def _json(found: Iterator[FilePredictions], skipped: list[Skipped], _: int) -> int:
    images = []
    for part in found:
        skipped += part.skipped
        for path, labels, names, chances in _by_image(part):
            classes = [
                {"label": label, "class": name, "probability": round(chance, 6)}
                for label, name, chance in zip(labels, names, chances, strict=True)
            ]
            images.append({"image": printable(path), "predictions": classes})
    left_out = [{"image": printable(one.path), "reason": one.reason} for one in skipped]
    show(as_json({"images": images, "skipped": left_out}))
    return len(images)


def _by_image(part: FilePredictions) -> Iterator[tuple[Path, list[int], tuple[str, ...], list[float]]]:
    told = part.predictions
    return zip(part.paths, told.labels.tolist(), told.names, told.probabilities.tolist(), strict=True)
