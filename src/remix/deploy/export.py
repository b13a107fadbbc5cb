"""From a model to a file that other programs serve, checked before it is there."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from remix.deploy.export_formats import Plain, as_onnx, as_safetensors, as_torch
from remix.deploy.plain_network import probe
from remix.learning import Model
from remix.networks.probe import evaluating
from remix.support.files import written_whole

__all__ = ["SUFFIXES", "Exported", "export"]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
"""Formats, and how their files end."""

_FORMATS: dict[str, Callable[[Model], Plain]] = {"onnx": as_onnx, "torch": as_torch, "safetensors": as_safetensors}
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
    plain = _FORMATS[format](model)
    difference, largest = _compare(model, plain.run)
    if not math.isfinite(largest):
        raise ValueError("the model gives NaN or infinite logits. Nothing was written")
    if not difference <= _TOLERANCE * max(largest, 1.0):  # also refuses NaN
        raise ValueError(
            f"the exported network does not give the model's answers: a logit differs by {difference:.2g} "
            f"({plain.program}, largest logit {largest:.2g}). Nothing was written"
        )
    files = {out: plain.content} | ({} if plain.note is None else {out.with_suffix(".json"): plain.note})
    with ExitStack() as stack:  # none takes its place before all have found room
        for file, content in files.items():
            target = stack.enter_context(written_whole(file))
            target.write(content)
            target.flush()
    return Exported(tuple(files), difference, largest, plain.program, sum(_BATCHES))


def _compare(model: Model, run: Callable[[torch.Tensor], torch.Tensor]) -> tuple[float, float]:
    """Largest difference of a logit, and largest logit, over batches of several sizes."""
    differences, sizes = [], []
    parameter = next(model.classifier.parameters())
    with evaluating(model.classifier):
        for count in _BATCHES:
            images = probe(model, count)
            expected = model.classifier(images.to(parameter)).float().cpu()
            found = run(images).float().cpu()
            same = found.shape == expected.shape
            differences.append((found - expected).abs().max() if same else torch.tensor(math.inf))
            sizes.append(expected.abs().max())
    return float(torch.stack(differences).max()), float(torch.stack(sizes).max())  # of torch: NaN stays NaN
