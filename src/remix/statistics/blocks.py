"""Points at the seams of a backbone's blocks."""

from __future__ import annotations

from torch import nn

from remix.networks import Backbone
from remix.networks.hooks import Point
from remix.networks.probe import block_shapes

__all__ = ["block_input_points", "feature_point", "resolution_points", "resolution_shapes"]


def block_input_points(backbone: Backbone) -> dict[str, Point]:
    """By block name, where to measure what the block receives; a first block that receives images is left out.

    That of the top of a network that was cut (`remix.networks.cut`) receives the maps at the cut, and is not.

    Layer-wise inversion starts a block's input from these statistics and holds it to them. They are those of the
    residual stream itself: the scale and shift of the last BatchNorm before it describe only one branch of the sum.

    Raises:
        ValueError: if a block's module is not part of the backbone, so that it cannot be watched.

    """
    names = _module_names(backbone)
    first = 0 if getattr(backbone, "measures_input", False) else 1
    return {
        block.name: Point(_name(names, block.module, block.name, first=True), "input")
        for block in backbone.blocks()[first:]
    }


def feature_point(backbone: Backbone) -> Point:
    """Where to capture the feature map: the output of the last block."""
    return _output(backbone, -1)


def resolution_points(backbone: Backbone) -> list[Point]:
    """Where the whole maps are worth remembering: the output of the last block at every height and width.

    A ResNet-32 has three (after 32 x 32, 16 x 16 and 8 x 8), an ImageNet ResNet the ends of its four stages.

    Raises:
        ValueError: if the blocks do not give maps (C, H, W).

    """
    return [_output(backbone, number) for number in _ends_of_resolutions(backbone)]


def resolution_shapes(backbone: Backbone) -> list[tuple[int, ...]]:
    """(C, H, W) of the maps at `resolution_points`. Raises ValueError as that does."""
    return [block_shapes(backbone)[number + 1] for number in _ends_of_resolutions(backbone)]


def _ends_of_resolutions(backbone: Backbone) -> list[int]:
    shapes = block_shapes(backbone)[1:]
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"the blocks of {type(backbone).__name__} do not all give maps (C, H, W): {shapes}")
    after = [*shapes[1:], None]
    return [i for i, shape in enumerate(shapes) if (following := after[i]) is None or following[1:] != shape[1:]]


def _output(backbone: Backbone, number: int) -> Point:
    block = backbone.blocks()[number]
    return Point(_name(_module_names(backbone), block.module, block.name, first=False), "output")


def _module_names(backbone: Backbone) -> dict[int, str]:
    if not isinstance(backbone, nn.Module):
        raise TypeError(f"a backbone must be an nn.Module, got {type(backbone).__name__}")
    return {id(module): name for name, module in backbone.named_modules()}


def _name(names: dict[int, str], module: nn.Module, block: str, first: bool) -> str:
    """The path of a block's module; a block made of several modules is watched at its first or last one."""
    while id(module) not in names and isinstance(module, nn.Sequential) and len(module):
        module = module[0 if first else -1]
    if id(module) not in names:
        raise ValueError(f"block {block!r} is not among the backbone's modules, so its tensors cannot be captured")
    return names[id(module)]
