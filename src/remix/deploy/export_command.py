"""`remix export`."""

from __future__ import annotations

import os
from pathlib import Path

from remix.deploy.export import SUFFIXES, Exported, export
from remix.deploy.output import show
from remix.learning import load_model
from remix.support.text import printable

__all__ = ["export_command"]


def export_command(model: str, *, format: str, out: str | None = None, overwrite: bool = False) -> Exported:
    """Export a model file and tell a person about it.

    Raises:
        ValueError: for whatever cannot be done; nothing is written then.
        OSError: if a file cannot be read or written.

    """
    if format not in SUFFIXES:
        raise ValueError(f"--format knows {', '.join(SUFFIXES)}, got {format!r}")
    path = Path(model).with_suffix(SUFFIXES[format]) if out is None else Path(out)
    if path.suffix != SUFFIXES[format]:
        raise ValueError(f"--out must end in {SUFFIXES[format]} for --format {format}, got {printable(path)}")
    for file in (path, path.with_suffix(".json")) if format == "safetensors" else (path,):
        if file.exists() and not overwrite:
            raise ValueError(f"{printable(file)} is there already: --overwrite replaces it, or choose another --out")
    opened = load_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"the folder {printable(path.parent)} cannot be written to")
    done = export(opened, format, path)
    for file in done.files:
        show(f"{printable(file)}  {file.stat().st_size:,} bytes")
    channels, height, width = opened.preprocessing.shape
    show(f"takes normalised images (N, {channels}, {height}, {width}), gives logits of {len(opened.classes)} classes")
    show(
        f"checked with {done.program} on {done.images} random images: logits differ by at most {done.difference:.1e} "
        f"(the largest is {done.largest:.1f})"
    )
    return done
