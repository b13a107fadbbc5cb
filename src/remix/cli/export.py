"""`remix export`."""

from __future__ import annotations

from typing import Literal

__all__ = ["export"]


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
