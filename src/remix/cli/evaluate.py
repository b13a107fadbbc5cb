"""`remix evaluate`."""

from __future__ import annotations

from typing import Literal

__all__ = ["evaluate"]


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
