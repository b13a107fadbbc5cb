"""From a model to a file that other programs serve, checked before it is there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from remix.deploy.export_formats import Written, write_onnx, write_safetensors, write_torch
from remix.deploy.plain_network import probe
from remix.learning import Model
from remix.networks.probe import evaluating
from remix.support.atomic import written_whole

__all__ = ["SUFFIXES", "Exported", "export"]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
"""Formats, and how their files end."""

_WRITERS: dict[str, Callable[[Model, Path], Written]] = {
    "onnx": write_onnx,
    "torch": write_torch,
    "safetensors": write_safetensors,
}
_TOLERANCE = 1e-3  # of the largest logit
_BATCHES = (1, 5)


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its answers lie from those of the model.

    Attributes:
        files: that were written.
        difference: largest difference of a logit.
        largest: the largest logit, to compare with.
        program: that ran the exported network.
        images: random images it was run on.

    """

    files: tuple[Path, ...]
    difference: float
    largest: float
    program: str
    images: int


def export(model: Model, format: str, out: str | Path) -> Exported:
    """Write a model as a plain network and compare its answers with the model's on random images.

    Args:
        model: what to export.
        format: "onnx", "torch" or "safetensors".
        out: the file; for safetensors a file of the same name that ends in .json is written too.

    Raises:
        ValueError: for an unknown format, missing packages, or a network that does not give the same answers; nothing
            is written then.
        OSError: if it cannot be written; what was there is unchanged then.

    """
    if format not in SUFFIXES:
        raise ValueError(f"--format knows {', '.join(SUFFIXES)}, got {format!r}")
    out = Path(out)
    with tempfile.TemporaryDirectory(prefix=".remix-export-", dir=out.parent) as folder:
        run, program = _WRITERS[format](model, Path(folder, out.name))
        difference, largest = _compare(model, run)
        if not difference <= _TOLERANCE * max(largest, 1.0):  # also refuses NaN
            raise ValueError(
                f"the exported network does not give the model's answers: a logit differs by {difference:.2g} "
                f"({program}, largest logit {largest:.2g}). Nothing was written"
            )
        made = sorted(Path(folder).iterdir())
        for file in made:
            with open(file, "rb") as source, written_whole(out.parent / file.name) as target:
                shutil.copyfileobj(source, target)
    files = tuple(out.parent / file.name for file in made)
    return Exported(files, difference, largest, program, sum(_BATCHES))


def _compare(model: Model, run: Callable[[torch.Tensor], torch.Tensor]) -> tuple[float, float]:
    """Largest difference of a logit, and largest logit, over batches of several sizes."""
    difference = largest = 0.0
    parameter = next(model.classifier.parameters())
    with evaluating(model.classifier):
        for count in _BATCHES:
            images = probe(model, count)
            expected = model.classifier(images.to(parameter)).float().cpu()
            found = run(images).float().cpu()
            if found.shape != expected.shape:
                return float("inf"), float(expected.abs().max())
            difference = max(difference, float((found - expected).abs().max()))
            largest = max(largest, float(expected.abs().max()))
    return difference, largest
