"""Loading published weights from safetensors files. The only place that knows how others name their keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from remix.networks.backbone import Backbone
from remix.networks.cifar_resnet import CifarResNet
from remix.networks.heads import Classifier, LinearHead
from remix.networks.registry import backbone_options, create_backbone
from remix.support.global_random import undisturbed
from remix.support.machine import out_of_memory

_HEAD_KEY = re.compile(r"(?:fc|linear|head)\.(weight|bias)")


def load_classifier(name: str, path: str | Path, **options: object) -> Classifier:
    """Build a backbone by name and load it with its head, as in ``load_classifier("resnet34", "weights.safetensors")``.

    CIFAR ResNets whose file names its keys ``layer1.0.conv1`` belong to the usual form of that network, so the options
    ``final_relu=True, padding="symmetric"`` are taken then unless others are given. The images must be normalised as
    they were in training; the file does not say how.

    Args:
        name: a registered backbone.
        path: a safetensors file with the backbone's weights and one linear head.
        options: options of the backbone.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a safetensors file, does not fit the backbone or holds no head.

    """
    return classifier_of(name, read_weights(path), path, **options)


@undisturbed()
def classifier_of(name: str, weights: Mapping[str, Tensor], source: str | Path, **options: object) -> Classifier:
    """The same from tensors that were read from ``source`` already."""
    plain = _without_prefix(weights)
    backbone = create_backbone(name, **{**_usual_options(name, plain), **options})
    head = _load(backbone, plain, source)
    if head is None:
        raise ValueError(
            f"{source} holds no head (fc, linear or head): use load_weights(backbone, path) and a new head"
        )
    return Classifier(backbone, head)


def file_options(name: str, path: str | Path) -> dict[str, object]:
    """The options of a backbone that a file's key names ask for: see `load_classifier`. Raises as `read_weights`."""
    return _usual_options(name, _without_prefix(read_weights(path)))


@undisturbed()
def load_weights(backbone: Backbone, path: str | Path) -> LinearHead | None:
    """Load a file's weights into a backbone, in place, in the backbone's own dtype and on its device.

    Returns:
        the linear head the file holds beside the backbone's weights, in the same dtype and on the same device, or None.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a safetensors file or its keys or shapes are not the backbone's. The backbone is
            unchanged then.

    """
    return _load(backbone, _without_prefix(read_weights(path)), path)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a safetensors file. Pickled checkpoints are refused because reading one can run code.

    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weights file {path}")
    try:
        weights: dict[str, Tensor] = load_file(path)
    # Besides its own error the library raises these for dtypes that torch does not have.
    except (SafetensorError, RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
        if out_of_memory(error):
            raise
        raise ValueError(
            f"{path} is not a readable safetensors file ({error}). Pickled checkpoints (.pt, .pth, .ckpt) are not "
            "read, since reading one can run code: convert it where you trust it with safetensors.torch.save_file"
        ) from error
    return weights


def check_numbers(weights: Mapping[str, Tensor]) -> None:
    """Check that a network of these weights can compute. Raises ValueError that names the first that cannot."""
    for key, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"the weights {key!r} hold NaN or infinite numbers")
        if key.endswith("running_var") and bool((tensor < 0).any()):
            raise ValueError(f"the running variance {key!r} is negative")


def _without_prefix(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the prefix that data-parallel training leaves on every key."""
    return {key.removeprefix("module."): value for key, value in weights.items()}


def _usual_options(name: str, weights: Mapping[str, Tensor]) -> dict[str, object]:
    usual = "padding" in backbone_options(name) and "layer1.0.conv1.weight" in weights
    return {"final_relu": True, "padding": "symmetric"} if usual else {}


def _load(backbone: Backbone, weights: dict[str, Tensor], path: str | Path) -> LinearHead | None:
    own = backbone.state_dict()
    head = {key: value for key, value in weights.items() if _HEAD_KEY.fullmatch(key) and key not in own}
    trunk = {_our_key(backbone, key): value for key, value in weights.items() if key not in head}
    problems = _differences(own, trunk)
    if problems:
        raise ValueError(f"{path} does not fit {type(backbone).__name__}: " + "; ".join(problems))
    built = _build_head(head, backbone.feature_dim, path)
    try:
        check_numbers({key: value.to(own[key].dtype) for key, value in trunk.items()})
        check_numbers({} if built is None else built.state_dict())
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from error
    for key, value in trunk.items():
        own[key].copy_(value)
    return None if built is None else built.to(next(backbone.parameters()))


def published_keys(backbone: nn.Module, options: Mapping[str, object]) -> dict[str, str]:
    """The backbone's own keys -> the usual ones, such that `load_classifier` with the same options reads them back.

    A CIFAR ResNet of another than the usual form keeps its own keys: by the usual ones it would be taken for that form.
    """
    usual = options.get("final_relu") is True and options.get("padding") == "symmetric"
    prefixes = _prefixes(backbone) if usual else ()
    return {key: _translated(key, prefixes) for key in backbone.state_dict()}


def _our_key(backbone: nn.Module, key: str) -> str:
    """Translate a published key to the backbone's own."""
    return _translated(key, [(published, own) for own, published in _prefixes(backbone)])


def _prefixes(backbone: nn.Module) -> list[tuple[str, str]]:
    """Beginnings of our keys and of the published ones. In CIFAR ResNets the last block of layer3 is our stage_4."""
    if not isinstance(backbone, CifarResNet):
        return []
    last = (("stage_4.0.", f"layer3.{len(backbone.stage_3)}."),)
    stages = ((f"stage_{number}.", f"layer{number}.") for number in (1, 2, 3))
    return [("stem.conv.", "conv1."), ("stem.bn.", "bn1."), *last, *stages]


def _translated(key: str, prefixes: Sequence[tuple[str, str]]) -> str:
    return next((new + key.removeprefix(old) for old, new in prefixes if key.startswith(old)), key)


def _differences(own: dict[str, Tensor], given: dict[str, Tensor]) -> list[str]:
    problems = []
    # A counter that only matters for BatchNorm with momentum=None; published files often leave it out.
    missing = [key for key in own if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in own]
    shapes = [
        f"{key} is {tuple(value.shape)} in the file, {tuple(own[key].shape)} in the network"
        for key, value in given.items()
        if key in own and own[key].shape != value.shape
    ]
    for label, items in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)):
        if items:
            more = f", ... ({len(items)} in all)" if len(items) > 5 else ""
            problems.append(f"{label}: {', '.join(items[:5])}{more}")
    return problems


def _build_head(tensors: dict[str, Tensor], feature_dim: int, path: str | Path) -> LinearHead | None:
    if not tensors:
        return None
    parts = {key.rpartition(".")[2]: value for key, value in tensors.items()}
    weight, bias = parts.get("weight"), parts.get("bias")
    if len(parts) < len(tensors) or weight is None:
        raise ValueError(f"{path} must hold one linear head, found {', '.join(tensors)}")
    if weight.dim() != 2 or weight.shape[1] != feature_dim:
        raise ValueError(f"the head in {path} has weights {tuple(weight.shape)}, expected (classes, {feature_dim})")
    head = LinearHead(feature_dim, [len(weight)], bias=bias is not None)
    own = head.state_dict()
    own["classifiers.0.weight"].copy_(weight)
    if bias is not None:
        own["classifiers.0.bias"].copy_(bias)
    return head
