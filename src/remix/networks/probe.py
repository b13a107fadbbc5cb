"""Running a network once on random images to see whether it keeps its promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from remix.networks.backbone import Backbone


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into eval mode without gradients, and give every module its own mode back afterwards."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def probe_images(network: nn.Module, input_shape: tuple[int, int, int]) -> Tensor:
    """Return two random images (2, C, H, W), always the same, in the network's dtype and on its device."""
    images = torch.randn(2, *input_shape, generator=torch.Generator().manual_seed(0))
    for parameter in network.parameters():
        if parameter.is_floating_point():
            return images.to(parameter)
    return images


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal; of tensors on the meta device, which have no values, whether their shapes are."""
    return one.shape == other.shape if one.is_meta else torch.equal(one, other)


def block_shapes(backbone: Backbone) -> list[tuple[int, ...]]:
    """What each block receives, without the batch axis, and last what the last one gives."""
    with evaluating(backbone):
        x = probe_images(backbone, backbone.input_shape)
        shapes = [tuple(x.shape[1:])]
        for block in backbone.blocks():
            x = block(x)
            shapes.append(tuple(x.shape[1:]))
    return shapes


def where_not_finite(backbone: Backbone, x: Tensor, start: int = 0) -> str:
    """In words: the first block from ``start`` on whose output for these items is NaN or infinite; nothing if none."""
    with evaluating(backbone):
        for block in backbone.blocks()[start:]:
            x = block(x)
            if not bool(torch.isfinite(x).all()):
                return f", the output of block {block.name!r} already"
    return ""


def check_backbone(backbone: Backbone) -> None:
    """Check on two random images that a backbone keeps its promises.

    Raises:
        TypeError: if it is no :class:`Backbone`, or a block returns no tensor.
        ValueError: if block names repeat, a block overwrites its input, the blocks in sequence are not ``features``,
            or ``pooled`` is not ``pool`` of ``features`` with length ``feature_dim``.

    """
    if not isinstance(backbone, Backbone):
        raise TypeError(f"{type(backbone).__name__} is not a backbone: derive it from remix.networks.Backbone")
    name = type(backbone).__name__
    blocks = backbone.blocks()
    names = [block.name for block in blocks]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{name}.blocks() must give blocks with different names, got {names}")
    with evaluating(backbone):
        images = probe_images(backbone, backbone.input_shape)
        x = images.clone()
        for block in blocks:
            x = _run_alone(block.name, block.module, x)
        features = backbone.features(images.clone())
        if not same(x, features):
            raise ValueError(f"{name}: running blocks() one after the other gives something else than features(x)")
        pooled = backbone.pooled(images.clone())
        if not same(pooled, backbone.pool(features)):
            raise ValueError(f"{name}: pooled(x) gives something else than pool(features(x))")
    if pooled.shape != (2, backbone.feature_dim):
        raise ValueError(
            f"{name}: pooled(x) of two images has shape {tuple(pooled.shape)}, "
            f"but feature_dim promises (2, {backbone.feature_dim})"
        )


def _run_alone(name: str, block: nn.Module, x: Tensor) -> Tensor:
    before = x.clone()
    y: object = block(x)
    if not isinstance(y, Tensor):
        raise TypeError(f"block {name!r} returned {type(y).__name__}; a block must return one tensor")
    if not same(x, before):
        raise ValueError(
            f"block {name!r} overwrites its input (an in-place operation such as relu_ or +=); inversion and "
            "statistics need that input, so use the out-of-place form"
        )
    return y
