"""Networks before their first step: by name, perhaps with weights, or a module of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from remix.data import IMAGENET, Preprocessing
from remix.deploy.step import Start
from remix.networks import (
    Backbone,
    as_backbone,
    backbone_options,
    file_options,
    load_weights,
    seeded_backbone,
)
from remix.networks.adapt import BlockPath

__all__ = ["named_start", "own_start", "preprocessing_for"]

_PHOTO_SIZE = 128  # pixels: a third of the work of 224, see docs/learn.md


def named_start(
    name: str,
    weights: str | Path | None,
    size: int | None,
    options: Mapping[str, Any],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    seed: int,
) -> Start:
    """A registered network.

    Args:
        name: of the backbone.
        weights: safetensors file; a head in it is not used.
        size: side of the images in pixels; by default the backbone's, 128 for those made for photographs.
        options: of the backbone.
        mean, std: per channel; see `preprocessing_for`.
        seed: of weights that are drawn.

    Raises:
        ValueError: for an unknown name or option, or weights that do not fit.
        FileNotFoundError: if there is no such file.

    """
    known = backbone_options(name)
    chosen: dict[str, Any] = {**(file_options(name, weights) if weights is not None else {}), **options}
    usual: Any = known.get("input_shape")
    if isinstance(usual, Sequence) and "input_shape" not in chosen:
        side = size or (_PHOTO_SIZE if usual[1] == 224 else usual[1])
        chosen["input_shape"] = (usual[0], side, side)
    elif size is not None:
        raise ValueError(f"the size of images for {name!r} is fixed: leave size out")
    try:
        backbone = seeded_backbone(name, seed, **chosen)
    except TypeError as error:  # an option that the backbone does not have
        raise ValueError(str(error)) from error
    provenance = {}
    if weights is not None:
        load_weights(backbone, weights)
        provenance["weights"] = Path(weights).name
    preprocessing = preprocessing_for(backbone, mean, std)
    return Start(backbone, name, chosen, preprocessing, trained=weights is not None, provenance=provenance)


def own_start(
    module: nn.Module,
    blocks: Sequence[BlockPath] | None,
    input_shape: tuple[int, int, int] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> Start:
    """A module of the user's own, taken for one that was not trained yet. Raises as `as_backbone`."""
    backbone = as_backbone(copy.deepcopy(module), blocks=blocks, input_shape=input_shape)
    return Start(backbone, type(module).__name__, {}, preprocessing_for(backbone, mean, std))


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
