"""The sub-commands of `remix` for a model file that is in use; see `remix.cli` for how such functions are written."""

from __future__ import annotations

import sys
from typing import Literal

__all__ = ["audit", "evaluate", "export", "inspect", "predict"]


def predict(
    model: str,
    images: list[str],
    *,
    format: Literal["table", "json", "csv"] = "table",
    top: int = 5,
    batch: int = 32,
    device: str = "auto",
) -> None:
    """What a model says about photographs: the most probable classes of each.

    Folders are searched with the folders in them. Files that cannot be read are left out and listed at the end; the
    status is 1 if none could be read. Results go to standard output, everything else to standard error.

    Args:
        model: Model file.
        images: Image files and folders; - reads names of them from standard input, one per line.
        format: table, json or csv (a line per image and class).
        top: Classes per image.
        batch: Images at a time.
        device: auto, cpu, cuda, mps, ...

    Examples:
        remix predict photos.remix cat.jpg holiday/
        remix predict photos.remix holiday/ --top 1 --format csv > found.csv
        find . -newer last -name "*.jpg" | remix predict photos.remix - --format json
    """
    from remix.deploy.prediction_command import predict_command

    status = predict_command(model, images, format=format, top=top, batch=batch, device=device)
    if status:
        sys.exit(status)


def evaluate(
    model: str,
    folder: str,
    *,
    format: Literal["table", "json", "csv"] = "table",
    batch: int = 32,
    device: str = "auto",
) -> None:
    """Accuracy of a model on a folder of labelled photographs, class by class, and the classes it confuses.

    Prints the mean over classes (macro) and the share of all images (micro). Classes of the folder that the model does
    not know are not tested, and listed.

    Args:
        model: Model file.
        folder: With one sub-folder of images per class, called as the model's classes; or with train and test (or val)
            in it: then the test part is used.
        format: table, json or csv.
        batch: Images at a time.
        device: auto, cpu, cuda, mps, ...

    Examples:
        remix evaluate photos.remix photos/test
        remix evaluate photos.remix photos/test --format json > accuracy.json
    """
    from remix.deploy.evaluation_command import evaluate_command

    evaluate_command(model, folder, format=format, batch=batch, device=device)


def inspect(model: str, *, json: bool = False, tensors: bool = False) -> None:
    """Everything that a model file holds, by kind and bytes; its classes and when each was learned; that no image is.

    Args:
        model: Model file.
        json: Print one JSON object, with every tensor.
        tensors: List every tensor with its kind and shape.

    Examples:
        remix inspect photos.remix
        remix inspect photos.remix --tensors
    """
    from remix.deploy.inspection_command import inspect_command

    inspect_command(model, json=json, tensors=tensors)


def export(
    model: str,
    *,
    format: Literal["onnx", "torch", "safetensors"],
    out: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model as a plain network for serving, without statistics, and check that it gives the same answers.

    It takes images that are resized and normalised and gives logits. How to prepare images, and the names of the
    classes, are in the metadata of the file (onnx), in extra/remix.json in it (torch), or beside it (NAME.json).

    Args:
        model: Model file.
        format: onnx - for onnxruntime and others, needs pip install 'remix-dfcil[onnx]'; torch - a program of
            torch.export, read with torch.export.load; safetensors - the weights under their usual names.
        out: File to write; by default the model's name, ending in .onnx, .pt2 or .safetensors.
        overwrite: Replace files that exist.

    Examples:
        remix export photos.remix --format onnx
        remix export photos.remix --format torch --out serve/photos.pt2
    """
    from remix.deploy.export_command import export_command

    export_command(model, format=format, out=out, overwrite=overwrite)


def audit(
    model: str,
    *,
    train: str,
    held_out: str | None = None,
    dreams: str | None = None,
    classes: str | None = None,
    count: int = 8,
    strategy: Literal["layerwise", "pixels", "pyramid", "generator"] | None = None,
    steps: int | None = None,
    seed: int = 0,
    out: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> None:
    """Whether dreams of a model are nearer to its training images than other images of the same kind are.

    For those who still have the training images: measures the distance from every dream to the nearest of them, and
    the same for held-out images, in pixels and in the network's features, and says what may be concluded.

    Args:
        model: Model file.
        train: Folder of the training images, one sub-folder per class.
        held_out: Folder of images that the model was not trained on; by default the test part of --train, if it has
            one. Without any, training images are compared with each other.
        dreams: File of dreams that remix dream wrote (NAME.safetensors), instead of dreaming now.
        classes: Names separated by commas; all by default, of more than ten the first ten.
        count: Dreams per class.
        strategy: As in remix dream.
        steps: As in remix dream.
        seed: Of the dreams.
        out: Figure of the nearest pairs to write, NAME.png; the numbers go to NAME.json.
        device: auto, cpu, cuda, mps, ...
        overwrite: Replace files that exist.

    Examples:
        remix audit photos.remix --train photos/train --held-out photos/test --out audit.png
        remix audit photos.remix --train photos --dreams grid.safetensors
    """
    from remix.deploy.audit_command import AuditFiles, audit_command
    from remix.deploy.dream_options import DreamOptions

    named = None if classes is None else tuple(word.strip() for word in classes.split(",") if word.strip())
    options = DreamOptions(named, count, strategy, steps=steps, seed=seed)
    audit_command(model, AuditFiles(train, held_out, dreams), options, out=out, device=device, overwrite=overwrite)
