"""Points at the seams of a backbone's blocks."""

from __future__ import annotations

from remix.networks import Backbone, Point
from remix.networks.probe import block_shapes

__all__ = ["block_input_points", "feature_point", "resolution_points", "resolution_shapes"]


def block_input_points(backbone: Backbone, start: int = 0) -> dict[str, Point]:
    """By block name from ``start`` on, where to measure what the block receives; one that receives images is left out.

    Raises:
        ValueError: if a block's module is not part of the backbone, so that it cannot be watched.

    """
    names = [block.name for block in backbone.blocks()[max(start, 1) :]]
    return dict(zip(names, (point for point, _ in backbone.block_inputs(start)), strict=True))


def feature_point(backbone: Backbone) -> Point:
    """Where to capture the feature map: the output of the last block."""
    return backbone.point(-1, "output")


def resolution_points(backbone: Backbone, start: int = 0) -> list[Point]:
    """Where the whole maps are worth remembering: the output of the last block at every height and width.

    A ResNet-32 has three (after 32 x 32, 16 x 16 and 8 x 8), an ImageNet ResNet the ends of its four stages.

    Raises:
        ValueError: if the blocks do not give maps (C, H, W).

    """
    return [backbone.point(number, "output") for number in _ends_of_resolutions(backbone) if number >= start]


def resolution_shapes(backbone: Backbone) -> list[tuple[int, ...]]:
    """(C, H, W) of the maps at `resolution_points`. Raises ValueError as that does."""
    return [block_shapes(backbone)[number + 1] for number in _ends_of_resolutions(backbone)]


def _ends_of_resolutions(backbone: Backbone) -> list[int]:
    shapes = block_shapes(backbone)[1:]
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"the blocks of {type(backbone).__name__} do not all give maps (C, H, W): {shapes}")
    after = [*shapes[1:], None]
    return [i for i, shape in enumerate(shapes) if (following := after[i]) is None or following[1:] != shape[1:]]
