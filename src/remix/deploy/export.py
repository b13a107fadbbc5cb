"""From a model to a file that other programs serve (ONNX, torch.export, safetensors), checked before it is there."""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor, nn

from remix._version import __version__
from remix.learning import Model
from remix.networks import Classifier, ExactHead, ExactLinearHead, create_backbone, described_head, list_backbones
from remix.networks.probe import evaluating
from remix.networks.weights import classifier_of, published_keys
from remix.statistics.storage import serialised
from remix.support.files import written_whole
from remix.support.global_random import undisturbed

__all__ = ["SUFFIXES", "Exported", "Plain", "PlainNetwork", "card", "export", "format_of", "probe"]

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
"""Formats, and how their files end."""

_EXACT = "exact_head"  # not a name that a reader would take for one linear layer on the last block
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


def format_of(path: str | Path) -> str:
    """The format that the ending of a file says. Raises ValueError for another ending."""
    formats = {suffix: name for name, suffix in SUFFIXES.items()}
    if (ending := Path(path).suffix) not in formats:
        raise ValueError(f"{path} must end in one of {', '.join(formats)}, which says what to write")
    return formats[ending]


@undisturbed()
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


def _compare(model: Model, run: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Largest difference of a logit, and largest logit, over batches of several sizes."""
    differences, sizes = [], []
    parameter = next(model.classifier.parameters())
    with evaluating(model.classifier):
        for count in _BATCHES:
            images = probe(model, count)
            expected = model.scale * model.classifier(images.to(parameter)).float().cpu()
            found = run(images).float().cpu()
            same = found.shape == expected.shape
            differences.append((found - expected).abs().max() if same else torch.tensor(math.inf))
            sizes.append(expected.abs().max())
    return float(torch.stack(differences).max()), float(torch.stack(sizes).max())  # of torch: NaN stays NaN


# --- the plain network ---


class PlainNetwork(nn.Module):
    """Backbone and head, mostly one linear layer, on the CPU in single precision: normalised images in, logits out.

    Logits are scaled as the model scales them, so that a softmax gives its probabilities.

    Args:
        model: stays as it is; its weights are copied.

    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        backbone: Any = model.classifier.backbone
        self.backbone = copy.deepcopy(backbone).cpu().float()
        self.fc = _scaled(model.classifier.head.plain().cpu().float(), model.scale)
        self._at = model.classifier.head.at
        self.eval()
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images (N, C, H, W) to logits (N, classes)."""
        logits: Tensor = self.fc(self.backbone.pooled(images, at=self._at))
        return logits


class _Scaled(nn.Module):
    """A head whose outputs are multiplied by a number."""

    def __init__(self, head: nn.Module, scale: float) -> None:
        super().__init__()
        self.head, self.scale = head, scale

    def forward(self, features: Tensor) -> Tensor:
        """Of the features that the head takes."""
        return self.scale * self.head(features)


def _scaled(head: nn.Module, scale: float) -> nn.Module:
    """A linear layer stays one."""
    if not isinstance(head, nn.Linear):
        return head if scale == 1 else _Scaled(head, scale)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(scale)
    return head


def card(model: Model) -> dict[str, Any]:
    """What a program needs to know to use the network, as plain JSON."""
    channels, height, width = model.preprocessing.shape
    return {
        "classes": list(model.classes),
        "preprocessing": model.preprocessing.to_dict() | model.preprocessing.recipe(),
        "input": f"images: float32 (N, {channels}, {height}, {width})",
        "output": f"logits: float32 (N, {len(model.classes)}), in the order of classes; softmax gives probabilities",
        "network": {"backbone": model.backbone, "options": dict(model.options)},
        **_exact_head(model),
        "remix": __version__,
    }


def _exact_head(model: Model) -> dict[str, Any]:
    """How a head that is not one linear layer on the last block makes logits, in words and as numbers."""
    head = model.classifier.head
    if not isinstance(head, ExactHead):
        return {}
    names = [model.classifier.backbone.blocks()[block].name for block in head.map.blocks]
    pooled = "means of the quarters, then deviations over positions," if head.map.detail else "mean over positions"
    steps = [f"x = {pooled} of the outputs of {', '.join(names)}, side by side"]
    if head.map.rooted:
        steps.append("x = sign(x) * sqrt(|x|), then the part of each block divided by its length")
    if head.map.projection is not None:
        steps.append("x = max(map.projection @ x, 0)")
    linear = isinstance(head, ExactLinearHead)
    scores = "weight @ x + bias" if linear else "-(x - mean)' precision (x - mean) of each class"
    steps.append(f"logits = scale * ({scores})")
    return {"head": {"formula": steps, "described": head.describe()}}


def probe(model: Model, count: int) -> Tensor:
    """Random images (count, C, H, W) as the network sees them, always the same."""
    generator = torch.Generator().manual_seed(count)
    pixels = torch.randint(0, 256, (count, *model.preprocessing.shape), generator=generator, dtype=torch.uint8)
    return model.preprocessing.normalisation.normalise(pixels)


# --- formats ---


class Plain(NamedTuple):
    """An exported network that is not written yet.

    Attributes:
        content: bytes of its file.
        run: images (N, C, H, W) -> logits, by these bytes.
        program: that runs them.
        note: bytes of the JSON file beside it, if there is one.

    """

    content: bytes
    run: Callable[[Tensor], Tensor]
    program: str
    note: bytes | None = None


def _as_onnx(model: Model) -> Plain:
    """ONNX with a free number of images; the note of `card` is in its metadata.

    Raises:
        ValueError: if the packages for it are not installed.

    """
    absent = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if absent:
        raise ValueError(
            f"--format onnx needs {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed: "
            "pip install 'remix-dfcil[onnx]'"
        )
    with _quiet():
        program: Any = torch.onnx.export(
            PlainNetwork(model),
            (probe(model, 2),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["images"],
            output_names=["logits"],
            verbose=False,
        )
    for key, value in card(model).items():
        program.model.metadata_props[key] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    content: bytes = program.model_proto.SerializeToString(deterministic=True)
    return Plain(content, *_onnx_runner(content))


def _onnx_runner(content: bytes) -> tuple[Callable[[Tensor], Tensor], str]:
    import onnx

    network = onnx.load_model_from_string(content)
    onnx.checker.check_model(network, full_check=True)
    if find_spec("onnxruntime") is not None:
        import onnxruntime

        session: Any = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        name = "onnxruntime"
    else:
        from onnx.reference import ReferenceEvaluator

        session, name = ReferenceEvaluator(network), "onnx.reference"
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0]), name


def _as_torch(model: Model) -> Plain:
    """A program of torch.export with a free number of images; the note of `card` is in it as extra/remix.json.

    Raises:
        ValueError: if this torch would put a pickle into it.

    """
    program: Any = torch.export.export(
        PlainNetwork(model), (probe(model, 2),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    program._example_inputs = None  # they alone would be pickled
    note = json.dumps(card(model), ensure_ascii=False)
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"remix.json": note})
    with zipfile.ZipFile(content) as archive:
        full = [one.filename for one in archive.infolist() if one.file_size]
    pickles = [name for name in full if name.endswith((".pt", ".pkl"))]
    if pickles:
        raise ValueError(
            f"torch {torch.__version__} puts a pickle into its programs ({pickles[0]}), which this package does not "
            "write: use a newer torch, or another --format"
        )
    content.seek(0)
    return Plain(content.getvalue(), torch.export.load(content).module(), "torch.export")


def _as_safetensors(model: Model) -> Plain:
    """The state dict with the key names that are usual for the network, and the note of `card` beside it as JSON."""
    if model.backbone not in list_backbones():
        raise ValueError(
            f"safetensors hold weights alone, and no function is registered to build {model.backbone!r} with them "
            "(remix.networks.register_backbone): export to onnx or torch (.pt2)"
        )
    network = PlainNetwork(model)
    if model.classifier.head.at is None and not isinstance(network.fc, nn.Linear):
        kind = model.classifier.head.kind
        raise ValueError(f"safetensors hold a linear head, not one of the kind {kind!r}: use --format onnx or torch")
    names = published_keys(network.backbone, model.options)
    top = "fc" if model.classifier.head.at is None else _EXACT
    tensors = {names[key]: tensor.contiguous() for key, tensor in network.backbone.state_dict().items()}
    tensors |= {f"{top}.{key}": tensor.contiguous() for key, tensor in network.fc.state_dict().items()}
    note = json.dumps(card(model), ensure_ascii=False, indent=2)
    content = serialised(tensors, {"format": "pt", "remix": note})
    read = load(content)
    if top == "fc":
        again = classifier_of(model.backbone, read, "the export", **dict(model.options)).eval()
    else:
        again = _exact_classifier(model, read, names, json.loads(note)["head"]["described"])
    return Plain(content, again, "safetensors", f"{note}\n".encode())


def _exact_classifier(
    model: Model, tensors: dict[str, Tensor], names: dict[str, str], described: dict[str, Any]
) -> Classifier:
    """The network of an exported state dict whose head the note describes."""
    backbone = create_backbone(model.backbone, **dict(model.options))
    backbone.load_state_dict({key: tensors[name] for key, name in names.items()})
    head = described_head(backbone.feature_dim, described)
    start = f"{_EXACT}."
    head.load_state_dict({key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)})
    return Classifier(backbone, head).eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages that nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


_FORMATS: dict[str, Callable[[Model], Plain]] = {"onnx": _as_onnx, "torch": _as_torch, "safetensors": _as_safetensors}
