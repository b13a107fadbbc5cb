"""`remix evaluate`."""

from __future__ import annotations

from typing import Any

from remix.deploy.evaluation import Evaluation, evaluate_folder
from remix.deploy.output import as_csv, as_json, as_table, check_format, note, note_left_out, show
from remix.learning import load_model
from remix.learning.devices import as_device, on_device
from remix.support.text import printable

__all__ = ["evaluate_command"]


def evaluate_command(
    model: str, folder: str, *, format: str = "table", batch: int = 32, device: str = "auto"
) -> Evaluation:
    """Test a model on a folder and print accuracies and the pairs of classes that it confuses.

    Raises:
        ValueError: for an unknown format, a file that is no model, or a folder that cannot be used.
        OSError: if the model file cannot be read.

    """
    check_format(format)
    opened = on_device(load_model(model), as_device(device))
    result = evaluate_folder(opened, folder, batch)
    show({"table": _table, "json": _json, "csv": _csv}[format](result))
    if format != "json":
        _notes(result)
    return result


def _table(result: Evaluation) -> str:
    rows = []
    for label in result.tested:
        images, right = result.of_class(label)
        rows.append([result.classes[label], f"{images}", f"{right}", f"{result.accuracy(label):.1f}%"])
    parts = [as_table(("class", "images", "right", "accuracy"), rows, right=(1, 2, 3))]
    parts.append(
        f"accuracy, mean over {len(rows)} classes (macro)  {result.macro:.2f}%\n"
        f"accuracy, share of {result.images} images (micro)  {result.micro:.2f}%"
    )
    pairs = [[pair.name, pair.read_as, f"{pair.images}", f"{pair.share:.1f}%"] for pair in result.confusions()]
    if pairs:
        parts.append(as_table(("most confused", "read as", "images", "of the class"), pairs, right=(2, 3)))
    return "\n\n".join(parts)


def _csv(result: Evaluation) -> str:
    rows: list[tuple[object, ...]] = []
    for label in result.tested:
        images, right = result.of_class(label)
        rows.append(("class", result.classes[label], "", images, right, f"{result.accuracy(label):.4f}"))
    rows.append(("macro", "", "", result.images, result.right, f"{result.macro:.4f}"))
    rows.append(("micro", "", "", result.images, result.right, f"{result.micro:.4f}"))
    rows += [("pair", pair.name, pair.read_as, pair.images, "", "") for pair in result.confusions()]
    return as_csv(("kind", "class", "read_as", "images", "right", "accuracy"), rows)


def _json(result: Evaluation) -> str:
    classes: list[dict[str, Any]] = []
    for label in result.tested:
        images, right = result.of_class(label)
        name, accuracy = result.classes[label], result.accuracy(label)
        classes.append({"class": name, "images": images, "right": right, "accuracy": round(accuracy, 4)})
    pairs = [
        {"class": pair.name, "read_as": pair.read_as, "images": pair.images, "share": round(pair.share, 4)}
        for pair in result.confusions()
    ]
    content = {
        "images": result.images,
        "accuracy_macro": round(result.macro, 4),
        "accuracy_micro": round(result.micro, 4),
        "classes": classes,
        "confusions": pairs,
        "classes_without_images": _absent(result),
        "unknown_classes": result.unknown,
        "skipped": [{"image": printable(one.path), "reason": one.reason} for one in result.skipped],
    }
    return as_json(content)


def _absent(result: Evaluation) -> list[str]:
    return [name for label, name in enumerate(result.classes) if label not in result.tested]


def _notes(result: Evaluation) -> None:
    if result.unknown:
        told = ", ".join(f"{name} ({files} files)" for name, files in result.unknown.items())
        note(f"WARNING: not tested, because the model does not know these classes: {told}")
    if absent := _absent(result):
        note(f"the folder has no images of {len(absent)} classes of the model: {', '.join(absent)}")
    note_left_out(result.skipped)
