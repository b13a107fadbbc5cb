"""A classifier with everything that is needed to use it and to go on learning, in one file. Never an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix._version import __version__
from remix.data import Preprocessing
from remix.learning.history import LearnStep, check_class_names, check_history
from remix.networks import Backbone, Classifier, create_backbone, described_head, list_backbones
from remix.networks.heads import head_class_of
from remix.networks.probe import evaluating, probe_images, where_not_finite
from remix.networks.weights import check_numbers
from remix.statistics import (
    Calibration,
    DamagedFileError,
    Memory,
    StoredTensor,
    check_layers,
    read_file,
    read_header,
    write_file,
)
from remix.statistics.statistic import statistic_classes
from remix.support.global_random import undisturbed
from remix.support.machine import out_of_memory
from remix.support.text import counted, did_you_mean, printable, some

__all__ = ["KIND", "OLDEST", "VERSION", "Model", "load_model", "save_model"]

KIND, VERSION = "model", 2  # of the file; version 1 had no history and no frozen blocks, and is read as well
OLDEST = 1

_LONGEST_TEXT, _MOST_TEXTS = 2000, 100  # of the provenance
_LARGEST_LOGIT = 1e12  # of random images; photographs may give some more, and that must not overflow
_LARGEST_SIDE = 1024  # pixels: the network is run once to check its statistics, and a file must not choose the cost


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A classifier, the names of its classes, how images are prepared for it, and what is remembered of its data.

    Attributes:
        classifier: backbone and head.
        backbone: the registered name of the backbone.
        options: of ``create_backbone(backbone, **options)``, without a generator.
        classes: names of the classes in the order of the head's outputs.
        preprocessing: of images.
        memory: statistics, or None.
        provenance: where the model comes from, as short texts by keyword.
        history: the steps of learning, oldest first; empty where nobody told.
        frozen: how many blocks, from the first on, are not trained any more.

    Raises:
        ValueError: if the parts do not fit together.

    """

    classifier: Classifier
    backbone: str
    options: Mapping[str, Any]
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    memory: Memory | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    history: tuple[LearnStep, ...] = ()
    frozen: int = 0

    def __post_init__(self) -> None:
        check_class_names(self.classes)
        outputs = self.classifier.head.num_classes
        if len(self.classes) != outputs:
            raise ValueError(f"the head has {outputs} outputs, but there are {len(self.classes)} class names")
        shape = tuple(self.classifier.backbone.input_shape)
        if shape != self.preprocessing.shape:
            raise ValueError(f"the backbone takes images {shape}, the preprocessing makes {self.preprocessing.shape}")
        check_history(self.history, self.classes)
        _check_provenance(self.provenance)
        blocks = len(self.classifier.backbone.blocks())
        if type(self.frozen) is not int or not 0 <= self.frozen <= blocks:
            raise ValueError(f"the backbone has {blocks} blocks, {str(self.frozen)[:60]} of them cannot be frozen")
        memory, backbone = self.memory or Memory(), self.classifier.backbone
        _check_memory(memory, self.classifier, self.classes)
        _check_answers(self.classifier, check_layers(memory.layers, backbone))

    def __repr__(self) -> str:
        """What it is, in a few lines."""
        channels, height, width = self.preprocessing.shape
        head = self.classifier.head.kind
        lines = [
            f"Model of {counted(len(self.classes), 'class')}: {some(self.classes)}",
            f"  network {self.backbone}, {head} head, images of {channels} x {height} x {width}",
        ]
        return "\n".join(lines + [f"  step {i}: {step.told()}" for i, step in enumerate(self.history, 1)])

    def to(self, device: torch.device) -> Model:
        """The same model on another device; its network is moved, not copied."""
        memory = None if self.memory is None else self.memory.to(device)
        return replace(self, classifier=self.classifier.to(device), memory=memory)

    @property
    def scale(self) -> float:
        """That its logits are multiplied by before they are probabilities: 1, unless images that were held out say."""
        known = None if self.memory is None else self.memory.get(Calibration.name)
        return 1.0 if known is None else known.scale

    def labels(self, names: Sequence[str | int]) -> list[int]:
        """The labels of classes by name, or by their places in ``classes``.

        Raises:
            ValueError: for an unknown name; the message has the closest one and lists the known.

        """
        places: dict[str | int, int] = {label: label for label in range(len(self.classes))}
        places |= {name: label for label, name in enumerate(self.classes)}
        for name in names:
            if name not in places:
                raise ValueError(f"there is no class {name!r}{_closest(str(name), self.classes)}")
        return [places[name] for name in names]


def save_model(path: str | Path, model: Model) -> None:
    """Write a model to one safetensors file with a JSON header, atomically; weights in float32.

    Raises:
        ValueError: if an option of the backbone is not plain, or the backbone is not one that can be built by name.
        OSError: if the file cannot be written; what was there before is unchanged then.

    """
    if model.backbone not in list_backbones():
        raise ValueError(
            f"backbone {model.backbone!r} cannot be saved: register it (remix.networks.register_backbone) first"
        )
    head = model.classifier.head
    content: dict[str, Any] = {
        "remix": __version__,
        "backbone": {"name": model.backbone, "options": {key: _plain(key, v) for key, v in model.options.items()}},
        "head": head.describe(),
        "classes": list(model.classes),
        "preprocessing": model.preprocessing.to_dict(),
        "provenance": {printable(str(key)): printable(str(value)) for key, value in model.provenance.items()},
        "history": [step.to_dict() for step in model.history],
        "frozen": model.frozen,
    }
    tensors = {f"network/{name}": _single(tensor) for name, tensor in model.classifier.state_dict().items()}
    if model.memory is not None:
        kept, content["memory"] = model.memory.to_tensors()
        tensors |= {f"memory/{name}": tensor for name, tensor in kept.items()}
    write_file(path, KIND, VERSION, tensors, content)


def load_model(path: str | Path) -> Model:
    """Read a file of `save_model`, of this version of the format or an earlier one, on the CPU, in eval mode.

    Nothing in it is executed. Its header is checked against the network that it describes before any weight is read.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFileError: in one sentence, if it is damaged, foreign, of another version, or no sound model.

    """
    header = read_header(path, KIND, VERSION, OLDEST)
    try:
        _check_weights(header.tensors, header.content)
        tensors, content = read_file(path, KIND, VERSION, OLDEST)
        return _parse(tensors, content)
    except DamagedFileError:
        raise
    except KeyError as error:
        raise DamagedFileError(f"{path} is not a valid model: {str(error.args[0])[:60]!r} is missing") from error
    except (ValueError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        if out_of_memory(error):
            raise
        raise DamagedFileError(f"{path} is not a valid model: {_sentence(error)}") from error


def _check_answers(classifier: Classifier, features: Tensor | None) -> None:
    """Whether the logits of random images are numbers; ``features`` of these images are there if they were needed."""
    backbone = classifier.backbone
    with evaluating(classifier):
        if features is None or classifier.head.at is not None:
            logits = classifier(probe_images(classifier, backbone.input_shape))
        else:
            logits = classifier.head(backbone.pool(features))
    if not bool((logits.abs() < _LARGEST_LOGIT).all()):  # false for NaN
        where = where_not_finite(backbone, probe_images(classifier, backbone.input_shape))
        raise ValueError(
            f"the network gives NaN or infinite numbers{where}: its weights are broken, or training went astray"
        )


def _check_memory(memory: Memory, network: Classifier, classes: Sequence[str]) -> None:
    known = [record.name for record in memory.classes]
    if known and known != list(classes):
        raise ValueError(f"the memory is of other classes: {', '.join(known[:5])} ...")
    if sorted(label for task in memory.tasks for label in task.labels) != list(range(len(known))):
        raise ValueError("the tasks of the memory do not tell of each of its classes once")
    memory.check(network)


def _check_provenance(texts: Mapping[str, str]) -> None:
    if len(texts) > _MOST_TEXTS or any(len(text) > _LONGEST_TEXT for pair in texts.items() for text in map(str, pair)):
        raise ValueError(f"a provenance holds at most {_MOST_TEXTS} texts of {_LONGEST_TEXT} characters")


# --- reading ---


def _check_weights(tensors: Mapping[str, StoredTensor], content: Any) -> None:
    """Compare what the file holds with the network that it describes. Nothing of that network's size is made."""
    name, options = _architecture(content)
    if name not in list_backbones():
        raise ValueError(
            f"its backbone {str(name)[:60]!r} is not known here; if it is one of your own, import the module that "
            "registers it first (for the command: REMIX_IMPORT)"
        )
    with torch.device("meta"):
        outline: Any = create_backbone(name, **options)
    expected = {
        f"backbone.{key}": (_dtype(tensor), tuple(tensor.shape)) for key, tensor in outline.state_dict().items()
    }
    head = head_class_of(content["head"])
    shapes = head.shapes(outline.feature_dim, content["head"])
    expected |= {f"head.{key}": ("I64" if key.endswith(head.counts) else "F32", shape) for key, shape in shapes.items()}
    weights = {key.removeprefix("network/"): tensor for key, tensor in tensors.items() if key.startswith("network/")}
    for key, (dtype, shape) in expected.items():
        if key not in weights:
            raise ValueError(f"the weights {key!r} are missing")
        found = weights[key]
        if found.shape != shape or found.dtype != dtype:
            raise ValueError(f"the weights {key!r} are {found.dtype} {found.shape}, expected {dtype} {shape}")
    if surplus := set(weights) - set(expected):
        raise ValueError(f"it holds weights {min(surplus)[:60]!r} that its backbone does not have")


def _parse(tensors: Mapping[str, Tensor], content: Any) -> Model:
    groups: dict[str, dict[str, Tensor]] = {"network": {}, "memory": {}}
    for name, tensor in tensors.items():
        group, _, rest = name.partition("/")
        if group not in groups:
            raise ValueError(f"it holds {name[:60]!r}, which no model holds")
        kind = statistic_classes().get(rest.partition("/")[0]) if group == "memory" else None
        # Most statistics too are computed with as the weights are.
        groups[group][rest] = tensor if kind is not None and kind.precise else _single(tensor)
    preprocessing = Preprocessing.from_dict(content["preprocessing"])
    if preprocessing.size > _LARGEST_SIDE:
        raise ValueError(f"its images would be of {preprocessing}")
    if not isinstance(content["remix"], str):
        raise ValueError(f"it was written by remix {str(content['remix'])[:60]}")
    name, options = _architecture(content)
    for key in ("classes", "history"):
        if not isinstance(content.get(key, []), list):
            raise ValueError(f"its {key} are described as {str(content[key])[:60]}")
    history = tuple(LearnStep.from_dict(step) for step in content.get("history", ()))
    provenance = {printable(str(key)): printable(str(value)) for key, value in content["provenance"].items()}
    memory = None
    if "memory" in content:
        memory = Memory.from_tensors(groups["memory"], content["memory"])
    elif groups["memory"]:
        raise ValueError("it holds statistics that its header does not describe")
    return Model(
        _classifier(name, options, content["head"], groups["network"]),
        name,
        options,
        tuple(content["classes"]),
        preprocessing,
        memory,
        provenance,
        history,
        content.get("frozen", 0),
    )


def _architecture(content: Any) -> tuple[str, dict[str, Any]]:
    described = content["backbone"]
    return described["name"], {str(key): _unlisted(value) for key, value in described["options"].items()}


@undisturbed()
def _classifier(name: str, options: dict[str, Any], head: Any, weights: dict[str, Tensor]) -> Classifier:
    check_numbers(weights)
    backbone: Backbone = create_backbone(name, **options)
    classifier = Classifier(backbone, described_head(backbone.feature_dim, head))
    own = classifier.state_dict()
    for key, tensor in weights.items():  # not load_state_dict, which is quadratic in the number of classifiers
        own[key].copy_(tensor)
    return classifier.eval()


# --- small things ---


def _single(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _dtype(tensor: Tensor) -> str:
    """As safetensors calls it; weights are kept in single precision."""
    if tensor.is_floating_point():
        return "F32"
    return str(tensor.dtype).removeprefix("torch.").upper().replace("UINT", "U").replace("INT", "I")


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(key, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"the option {key!r} of a backbone must be plain to be saved, got {type(value).__name__}")


def _unlisted(value: Any) -> Any:
    """Options are tuples in Python and lists in JSON."""
    return tuple(map(_unlisted, value)) if isinstance(value, list) else value


def _closest(name: str, known: Sequence[str], limit: int = 30) -> str:
    listed = ", ".join(known[:limit]) + (f", ... ({len(known)} in all)" if len(known) > limit else "")
    return f"{did_you_mean(name, known)}; the model knows: {listed}"


def _sentence(error: BaseException) -> str:
    return printable(str(error).partition("\n")[0][:300]) or type(error).__name__
