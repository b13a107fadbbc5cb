"""A model as bytes of other formats: ONNX, torch.export and safetensors; each with a function that runs the bytes."""

from __future__ import annotations

import io
import json
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor

from remix.deploy.plain_network import PlainNetwork, card, probe
from remix.learning import Model
from remix.networks.weights import classifier_of, published_keys
from remix.statistics.storage import serialised

__all__ = ["Plain", "as_onnx", "as_safetensors", "as_torch"]


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


def as_onnx(model: Model) -> Plain:
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


def as_torch(model: Model) -> Plain:
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


def as_safetensors(model: Model) -> Plain:
    """The state dict with the key names that are usual for the network, and the note of `card` beside it as JSON."""
    network = PlainNetwork(model)
    names = published_keys(network.backbone, model.options)
    tensors = {names[key]: tensor.contiguous() for key, tensor in network.backbone.state_dict().items()}
    tensors |= {f"fc.{key}": tensor.contiguous() for key, tensor in network.fc.state_dict().items()}
    note = json.dumps(card(model), ensure_ascii=False, indent=2)
    content = serialised(tensors, {"format": "pt", "remix": note})
    again = classifier_of(model.backbone, load(content), "the export", **dict(model.options)).eval()
    return Plain(content, again, "safetensors", f"{note}\n".encode())


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
