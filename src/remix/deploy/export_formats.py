"""Writers of plain networks: ONNX, torch.export and safetensors. Each gives a function that runs what was written."""

from __future__ import annotations

import io
import json
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from remix.deploy.plain_network import PlainNetwork, card, probe
from remix.learning import Model
from remix.networks import load_classifier
from remix.networks.weights import published_keys

__all__ = ["Written", "write_onnx", "write_safetensors", "write_torch"]

Written = tuple[Callable[[Tensor], Tensor], str]
"""What runs the exported network on images (N, C, H, W), and the name of the program that does it."""


def write_onnx(model: Model, path: Path) -> Written:
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
    program.save(path, external_data=False)
    return _onnx_runner(path)


def _onnx_runner(path: Path) -> Written:
    import onnx

    network = onnx.load(str(path))
    onnx.checker.check_model(network, full_check=True)
    if find_spec("onnxruntime") is not None:
        import onnxruntime

        session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        name = "onnxruntime"
    else:
        from onnx.reference import ReferenceEvaluator

        session, name = ReferenceEvaluator(network), "onnx.reference"
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0]), name


def write_torch(model: Model, path: Path) -> Written:
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
    path.write_bytes(content.getvalue())
    return torch.export.load(path).module(), "torch.export"


def write_safetensors(model: Model, path: Path) -> Written:
    """The state dict with the key names that are usual for the network, and the note of `card` beside it as JSON."""
    network = PlainNetwork(model)
    names = published_keys(network.backbone, model.options)
    tensors = {names[key]: tensor.contiguous() for key, tensor in network.backbone.state_dict().items()}
    tensors |= {f"fc.{key}": tensor.contiguous() for key, tensor in network.fc.state_dict().items()}
    note = json.dumps(card(model), ensure_ascii=False, indent=2)
    save_file(tensors, path, {"format": "pt", "remix": note})
    path.with_suffix(".json").write_text(note + "\n", encoding="utf-8")
    return load_classifier(model.backbone, path, **dict(model.options)).eval(), "safetensors"


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
