"""`remix inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remix.cli.output import as_json, show, text_table
from remix.support.text import printable

if TYPE_CHECKING:
    from remix.deploy.inspection import Inspection

__all__ = ["inspect"]


def inspect(model: str, *, json: bool = False, tensors: bool = False) -> None:
    """Everything that a model file holds, by kind and bytes, and that no image is in it; when each class was learned.

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it (NAME.remix).
        json: Print one JSON object, with every tensor.
        tensors: List every tensor with its kind and shape.

    Examples:
        remix inspect photos.remix
        remix inspect photos.remix --tensors
    """
    from remix.deploy.inspection import as_plain, inspect_file

    found = inspect_file(model)
    show(as_json(as_plain(found)) if json else "\n\n".join(_sections(found, tensors)))


def _sections(found: Inspection, tensors: bool) -> list[str]:
    sections = [_about(found), _classes(found)]
    if found.model.history:
        sections.append(_history(found))
    sections.append(_kinds(found))
    if tensors:
        parts = [part for part in found.parts if part.kind != "header"]
        rows = [[part.kind, printable(part.name), part.dtype, str(part.shape), f"{part.bytes:,}"] for part in parts]
        sections.append(text_table(("kind", "tensor", "dtype", "shape", "bytes"), rows, right=(4,)))
    sections.append(_statement(found, tensors))
    return sections


def _about(found: Inspection) -> str:
    from remix.deploy.inspection import as_plain

    plain = as_plain(found)
    network, model = plain["network"], found.model
    options = ", ".join(f"{key}={value}" for key, value in network["options"].items())
    prepared = model.preprocessing
    colour = "RGB" if prepared.channels == 3 else "grey"
    numbers = [", ".join(f"{number:.4g}" for number in values) for values in (prepared.mean, prepared.std)]
    rows = [
        ["file", f"{printable(found.path)}  {found.bytes:,} bytes, format version {found.header.version}"],
        ["written by", f"remix {printable(plain['written_by_remix'])}"],
        ["checksum", f"sha256 {found.header.checksum}"],
        ["network", f"{model.backbone}{f' ({printable(options)})' * bool(options)}, {network['parameters']:,} weights"],
        ["blocks", f"{len(network['blocks'])}, of which the first {model.frozen} are frozen"],
        ["images", f"{prepared.size} x {prepared.size} pixels, {colour}: shorter side resized, middle kept"],
        ["", f"then minus mean {numbers[0]} and divided by {numbers[1]} per channel (of 0..1)"],
        *([f"{printable(key)}", printable(text)] for key, text in model.provenance.items()),
    ]
    return text_table(("", ""), rows).lstrip("\n")


def _classes(found: Inspection) -> str:
    rows = []
    for entry in found.classes:
        learned = "not told" if entry.learned is None else _day(entry.learned)
        extended = ", ".join(map(_day, entry.extended))
        images = f"{entry.images}" if entry.images else "not told"
        rows.append([f"{entry.label}", entry.name, images, learned, entry.method or "", extended])
    head = ["label", "class", "images", "learned", "by", "extended"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return text_table(head, rows, right=(0, 2))


def _history(found: Inspection) -> str:
    rows = []
    for number, step in enumerate(found.model.history, 1):
        told = ", ".join(f"{what} {value:.1f}%" for what, value in step.accuracies.items())
        rows.append([f"{number}", _day(step.date), step.method, f"{len(step.classes)}", f"{sum(step.images)}", told])
    table = text_table(("step", "date", "method", "classes", "images", "accuracy then"), rows, right=(0, 3, 4))
    notes = [f"step {n}: {printable(text)}" for n, step in enumerate(found.model.history, 1) for text in step.notes]
    return "\n".join([table, *notes])


def _kinds(found: Inspection) -> str:
    from remix.deploy.inspection import KINDS

    rows = []
    for total in found.totals():
        first, last = total.shapes[0], total.shapes[-1]
        shapes = "" if not total.tensors else f"{first}" if first == last else f"{first} to {last}"
        count = f"{total.tensors}" if total.tensors else ""
        rows.append([total.kind, count, f"{total.bytes:,}", shapes, KINDS[total.kind]])
    rows.append(["all", f"{sum(t.tensors for t in found.totals())}", f"{found.bytes:,}", "", "the whole file"])
    return text_table(("stored", "tensors", "bytes", "shapes", "what it is"), rows, right=(1, 2))


def _statement(found: Inspection, tensors: bool) -> str:
    listed = "listed above" if tensors else "listed with --tensors"
    lines = [
        "No image is stored. How this is known: the bytes above add up to the file; every tensor in it "
        f"({listed}) is of one of these kinds and has the shape that the network and its classes call for; none of "
        "these kinds has an axis over images; a file with any other tensor is refused.",
        *_covariances(found),
        "What these numbers can still tell about the training images: docs/privacy.md, and remix audit.",
        *(f"WARNING: {text}" for text in found.warnings()),
    ]
    return "\n".join(lines)


def _covariances(found: Inspection) -> list[str]:
    """What the covariance of features takes, and what it would take in another form."""
    told = [f"{size:,} bytes as {kind}" for kind, size in found.covariances().items()]
    if not told:
        return []
    rest = f"; it would take {' and '.join(told[1:])} (--covariance)" if told[1:] else ""
    return [f"The covariance of features takes {told[0]}{rest}."]


def _day(date: str) -> str:
    """Without the seconds: 2026-11-16 03:00."""
    return date[:16].replace("T", " ")
