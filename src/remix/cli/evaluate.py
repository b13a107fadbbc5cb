"""`remix evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remix.cli.output import Format, as_json, check_format, note, note_left_out, show, text_table
from remix.support.text import as_csv, printable

if TYPE_CHECKING:
    from remix.deploy.evaluation import Evaluation

__all__ = ["evaluate"]


def evaluate(
    model: str,
    folder: str,
    *,
    format: Format = "table",
    batch: int = 32,
    device: str = "auto",
) -> None:
    """Accuracy of a model on a folder of labelled photographs, class by class, and the classes it confuses.

    Prints the mean over classes (macro) and the share of all images (micro), and by how much the probabilities of the
    answers differ from the share that is right (expected calibration error). Classes of the folder that the model does
    not know are not tested, and listed.

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it (NAME.remix).
        folder: Folder with one sub-folder of images per class, called as the model's classes; or with train and test
            (or val) in it: then the test part is used.
        format: How results are printed: table, json or csv.
        batch: Images that go through the network at a time; fewer take less memory.
        device: Where to compute: auto (a GPU if there is one), cpu, cuda, mps, ...

    Examples:
        remix evaluate photos.remix photos/test
        remix evaluate photos.remix photos/test --format json > accuracy.json
    """
    from remix.deploy.evaluation import evaluate_folder
    from remix.learning import load_model
    from remix.learning.team import as_device

    check_format(format)
    result = evaluate_folder(load_model(model).to(as_device(device)), folder, batch)
    show({"table": _table, "json": _json, "csv": _csv}[format](result))
    if format != "json":
        _notes(result)


def _table(result: Evaluation) -> str:
    rows = []
    for label in result.tested:
        images, right = result.of_class(label)
        rows.append([result.classes[label], f"{images}", f"{right}", f"{result.accuracy(label):.1f}%"])
    parts = [text_table(("class", "images", "right", "accuracy"), rows, right=(1, 2, 3))]
    parts.append(
        f"accuracy, mean over {len(rows)} classes (macro)  {result.macro:.2f}%\n"
        f"accuracy, share of {result.images} images (micro)  {result.micro:.2f}%\n"
        f"calibration error, of the probabilities (15 bins)  {result.calibration_error:.2f}%"
    )
    pairs = [[pair.name, pair.read_as, f"{pair.images}", f"{pair.share:.1f}%"] for pair in result.confusions()]
    if pairs:
        parts.append(text_table(("most confused", "read as", "images", "of the class"), pairs, right=(2, 3)))
    return "\n\n".join(parts)


def _csv(result: Evaluation) -> str:
    rows: list[tuple[object, ...]] = []
    for label in result.tested:
        images, right = result.of_class(label)
        rows.append(("class", result.classes[label], "", images, right, f"{result.accuracy(label):.4f}"))
    rows.append(("macro", "", "", result.images, result.right, f"{result.macro:.4f}"))
    rows.append(("micro", "", "", result.images, result.right, f"{result.micro:.4f}"))
    rows += [("pair", pair.name, pair.read_as, pair.images, "", "") for pair in result.confusions()]
    columns = ("kind", "class", "read_as", "images", "right", "accuracy")
    return as_csv([dict(zip(columns, row, strict=True)) for row in rows]).rstrip("\n")


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
        "calibration_error": round(result.calibration_error, 4),
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
