"""`remix export`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from remix.cli.output import check_format, show
from remix.support.text import printable

__all__ = ["export"]


def export(
    model: str,
    *,
    format: Literal["onnx", "torch", "safetensors"] | None = None,
    out: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model as a plain network for serving, without statistics, and check that it gives the same answers.

    It takes images that are resized and normalised and gives logits. How to prepare images, and the names of the
    classes, are in the metadata of the file (onnx), in extra/remix.json in it (torch), or beside it (NAME.json).

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it (NAME.remix).
        format: What to write: onnx - for onnxruntime and others, needs pip install 'remix-dfcil[onnx]'; torch - a
            program of torch.export, read with torch.export.load; safetensors - the weights under their usual names. By
            default what the ending of --out says.
        out: File to write; by default the model's name, ending in .onnx, .pt2 or .safetensors.
        overwrite: Replace files that exist.

    Examples:
        remix export photos.remix --format onnx
        remix export photos.remix --out serve/photos.pt2
    """
    from remix.deploy.export import SUFFIXES, format_of
    from remix.deploy.export import export as write_export
    from remix.learning import load_model

    if format is None and out is None:
        raise ValueError(f"say as what: --format {', '.join(SUFFIXES)}, or --out with the ending of one")
    kind = format or format_of(out or "")
    check_format(kind, SUFFIXES)
    path = Path(model).with_suffix(SUFFIXES[kind]) if out is None else Path(out)
    if path.suffix != SUFFIXES[kind]:
        raise ValueError(f"--out must end in {SUFFIXES[kind]} for --format {kind}, got {printable(path)}")
    for file in (path, path.with_suffix(".json")) if kind == "safetensors" else (path,):
        if file.exists() and not overwrite:
            raise ValueError(f"{printable(file)} is there already: --overwrite replaces it, or choose another --out")
    opened = load_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"the folder {printable(path.parent)} cannot be written to")
    done = write_export(opened, kind, path)
    for file in done.files:
        show(f"{printable(file)}  {file.stat().st_size:,} bytes")
    channels, height, width = opened.preprocessing.shape
    show(f"takes normalised images (N, {channels}, {height}, {width}), gives logits of {len(opened.classes)} classes")
    show(
        f"checked with {done.program} on {done.images} random images: logits differ by at most {done.difference:.1e} "
        f"(the largest is {done.largest:.1f})"
    )
