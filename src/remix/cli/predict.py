"""`remix predict`."""

from __future__ import annotations

import sys
from typing import Literal

__all__ = ["predict"]


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
