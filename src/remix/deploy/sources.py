"""Where a command takes its network from: a model file, or weights with or without statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remix.learning import Model, load_model
from remix.networks import Classifier, open_network
from remix.statistics import Memory
from remix.support.documents import DocumentError, parse_json
from remix.support.files import read_limited
from remix.support.text import shown

__all__ = ["NetworkFile", "Opened", "open_model", "read_names", "read_numbers", "read_options"]

_LONGEST_NAMES = 16 << 20  # bytes of a file of names


@dataclass(frozen=True)
class NetworkFile:
    """Weights in a safetensors file, and what the file does not say about itself.

    Attributes:
        weights: the file.
        backbone: name of the backbone.
        options: of the backbone, such as ``width=8``, as text.
        size: side of the images in pixels; by default the backbone's.
        mean: of each channel, as text; by default that of ImageNet for colour, 0 for grey.
        std: the same; 1 for grey.
        names: of the head's outputs in their order, separated by commas or in a file with one per line.

    """

    weights: str
    backbone: str | None = None
    options: str | None = None
    size: int | None = None
    mean: str | None = None
    std: str | None = None
    names: str | None = None

    def load(self) -> Model:
        """The network as a model without statistics; without names, its classes are called by their numbers.

        Raises:
            ValueError: if the file does not fit the backbone, or an argument cannot be read.
            FileNotFoundError: if there is no such file.

        """
        if self.backbone is None:
            raise ValueError("weights alone do not say what network they belong to: give --backbone (remix backbones)")
        mean, std = read_numbers("--mean", self.mean), read_numbers("--std", self.std)
        found = open_network(self.backbone, read_options(self.options), self.weights, self.size, mean, std)
        if found.head is None:
            raise ValueError(f"{self.weights} holds no head (fc, linear or head), so it names no classes")
        classifier = Classifier(found.backbone, found.head).eval()
        outputs = classifier.head.num_classes
        names = read_names(self.names) if self.names else tuple(str(i) for i in range(outputs))
        if len(names) != outputs:
            raise ValueError(f"--names has {len(names)} names, but the head in {self.weights} has {outputs} outputs")
        return Model(classifier, self.backbone, found.options, names, found.preprocessing, None, found.provenance)


@dataclass(frozen=True)
class Opened:
    """A model, and what a person should know about how it was put together."""

    model: Model
    notes: tuple[str, ...] = ()


def open_model(model: str | None, network: NetworkFile | None, statistics: str | None) -> Opened:
    """The model that a command names: a model file, or weights with a backbone and perhaps a file of statistics.

    Raises:
        ValueError: if both or neither are named, or the parts do not fit together.
        FileNotFoundError: if a file does not exist.

    """
    if model is not None and network is not None:
        raise ValueError(f"give either the model {model} or --weights {network.weights}, not both")
    if model is not None:
        if statistics is not None:
            raise ValueError("--statistics goes with --weights; a model file has its own")
        return Opened(load_model(model))
    if network is None:
        raise ValueError("name a model file (remix measure makes one), or give --weights and --backbone")
    bare = network.load()
    if statistics is None:
        note = (
            "weights alone: only the statistics of BatchNorm layers are known. "
            "`remix measure` adds those that the strategy layerwise and the priors laplace and dense need."
        )
        return Opened(bare, (note,))
    memory = Memory.load(statistics)
    if memory.classes and network.names is None and len(memory.classes) == len(bare.classes):
        bare = replace(bare, classes=tuple(record.name for record in memory.classes))
    return Opened(replace(bare, memory=memory))


def read_names(text: str) -> tuple[str, ...]:
    """Names from a text separated by commas, or from a file with one name per line.

    Raises:
        ValueError: if there are none.

    """
    path = Path(text)
    is_file = len(text) < 1000 and path.is_file()
    parts = read_limited(path, _LONGEST_NAMES).decode("utf-8").splitlines() if is_file else text.split(",")
    names = tuple(part.strip() for part in parts if part.strip())
    if not names:
        raise ValueError(f"{shown(text)} holds no names")
    return names


def read_numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas, or None. Raises ValueError naming the option."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{option} must be numbers separated by commas, got {shown(text)}") from error


def read_options(text: str | None) -> dict[str, Any]:
    """Options such as ``width=8,final_relu=true`` by name. Raises ValueError for a part without ``=``."""
    options: dict[str, Any] = {}
    for part in (text or "").split(","):
        key, sign, value = part.partition("=")
        if not part.strip():
            continue
        if not sign:
            raise ValueError(f"--options must look like width=8,final_relu=true, got {shown(text)}")
        options[key.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    try:
        value = parse_json(text)
    except DocumentError:
        return text
    return value if isinstance(value, bool | int | float | str) else text
