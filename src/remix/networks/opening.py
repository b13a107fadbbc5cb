"""Opening a network: by name, perhaps with published weights, with what is done to its images."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from remix.data import IMAGENET, Preprocessing
from remix.networks.adapt import BlockPath, as_backbone
from remix.networks.backbone import Backbone
from remix.networks.heads import Head
from remix.networks.hf_folder import open_image_model
from remix.networks.registry import backbone_options, seeded_backbone
from remix.networks.weights import file_options, load_weights

__all__ = ["OpenedNetwork", "open_module", "open_network", "preprocessing_for"]


@dataclass(frozen=True, eq=False)
class OpenedNetwork:
    """A network, and what is needed to build and to use it again.

    Attributes:
        backbone: the network.
        name: that it is registered under.
        options: of ``create_backbone(name, **options)``.
        preprocessing: of images.
        head: that came with the weights, or None.
        names: of the head's outputs, where the weights tell.
        provenance: where it comes from, as short texts by keyword.

    """

    backbone: Backbone
    name: str
    options: Mapping[str, Any]
    preprocessing: Preprocessing
    head: Head | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def trained(self) -> bool:
        """Whether it has weights of training elsewhere."""
        return not {"weights", "adopted"}.isdisjoint(self.provenance)


def open_network(
    name: str,
    options: Mapping[str, Any] | None = None,
    weights: str | Path | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int = 0,
) -> OpenedNetwork:
    """Open a registered network, or with ``hf:PATH_OR_NAME`` one of the `transformers` library with its weights.

    Args:
        name: of the backbone.
        options: of the backbone.
        weights: safetensors file to begin with; without one, weights are drawn.
        size: side of the images in pixels; by default the backbone's.
        mean, std: per channel; see `preprocessing_for`.
        seed: of weights that are drawn.

    Raises:
        ValueError: for an unknown name or option, or weights that do not fit.
        FileNotFoundError: if there is no such file.

    """
    if name.startswith("hf:"):
        return _open_folder(name, options or {}, weights, size, mean, std, seed)
    chosen: dict[str, Any] = {**(file_options(name, weights) if weights is not None else {}), **(options or {})}
    if size is not None:
        _check_size(size)
        usual: Any = backbone_options(name).get("input_shape")
        if not isinstance(usual, Sequence) or "input_shape" in chosen:
            raise ValueError(f"the size of images for {name!r} is fixed: leave size (--size) out")
        chosen["input_shape"] = (usual[0], size, size)
    try:
        backbone = seeded_backbone(name, seed, **chosen)
    except TypeError as error:
        known = chosen.keys() <= backbone_options(name).keys()
        raise ValueError(f"{chosen} holds a value of the wrong kind ({error})" if known else str(error)) from error
    head = None if weights is None else load_weights(backbone, weights)
    provenance = {} if weights is None else {"weights": Path(weights).name}
    return OpenedNetwork(backbone, name, chosen, preprocessing_for(backbone, mean, std), head, provenance)


def _open_folder(
    name: str,
    options: Mapping[str, Any],
    weights: str | Path | None,
    size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    seed: int,
) -> OpenedNetwork:
    """A network of the `transformers` library."""
    if weights is not None:
        raise ValueError(f"{name} has its own weights: leave weights (--weights) out")
    if unknown := options.keys() - backbone_options(name).keys():
        raise ValueError(f"{name} has no option {min(unknown)!r}; it takes: {', '.join(backbone_options(name))}")
    if size is not None:
        _check_size(size)
    place = name.removeprefix("hf:")
    found = open_image_model(place, **options, size=size, seed=seed)
    _, height, _ = found.backbone.input_shape
    usual = found.preprocessing
    preprocessing = replace(usual, size=height, mean=tuple(mean or usual.mean), std=tuple(std or usual.std))
    weights_name = f"hf:{Path(place).name if Path(place).is_dir() else place}"
    return OpenedNetwork(
        found.backbone, "transformer", found.options, preprocessing, found.head, {"weights": weights_name}, found.names
    )


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"the size of images must be at least 1 pixel, got {size}")


def open_module(
    module: nn.Module,
    blocks: Sequence[BlockPath] | None,
    input_shape: tuple[int, int, int] | None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> OpenedNetwork:
    """A copy of a module of the user's own, taken for one that was not trained yet. Raises as `as_backbone`."""
    backbone = as_backbone(copy.deepcopy(module), blocks=blocks, input_shape=input_shape)
    return OpenedNetwork(backbone, type(module).__name__, {}, preprocessing_for(backbone, mean, std))


def preprocessing_for(backbone: Backbone, mean: Sequence[float] | None, std: Sequence[float] | None) -> Preprocessing:
    """Images as a network takes them, normalised as ImageNet for colour and not at all for grey by default.

    Raises:
        ValueError: if they are not square, or not one number per channel.

    """
    channels, height, width = backbone.input_shape
    if height != width:
        raise ValueError(f"the network takes images of {height} x {width} pixels; only squares can be made")
    usual = (IMAGENET.mean, IMAGENET.std) if channels == 3 else ((0.0,) * channels, (1.0,) * channels)
    return Preprocessing(height, channels, tuple(mean or usual[0]), tuple(std or usual[1]))
