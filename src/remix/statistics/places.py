"""Where statistics are taken: the inputs of BatchNorm layers, which know their own, and the seams of blocks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from remix.networks import Backbone, Point
from remix.networks.probe import block_shapes
from remix.networks.views import CHANNELS
from remix.statistics.layers import LayerStatistics

__all__ = [
    "batchnorm_points", "batchnorm_statistics", "block_input_points", "feature_point",
    "rescale_to_batchnorm", "resolution_points", "resolution_shapes",
]  # fmt: skip


def batchnorm_points(network: nn.Module) -> list[Point]:
    """The inputs of every BatchNorm layer with running statistics, in the order of the network's modules."""
    return [Point(name, "input") for name, _ in _tracking(network)]


def batchnorm_statistics(network: nn.Module) -> dict[str, LayerStatistics]:
    """Diagonal statistics of every BatchNorm input from the running averages alone, by key; no data needed.

    A running variance below the layer's eps counts as eps, as it does in the layer itself.
    """
    statistics = {}
    for name, layer in _tracking(network):
        mean, variance = _running(layer)
        point = Point(name, "input")
        # The height and width are not known here; the channels view does not depend on them.
        entry = LayerStatistics(point, CHANNELS, (len(mean),), 0, mean.clone(), variance)
        statistics[entry.key] = entry
    return statistics


def rescale_to_batchnorm(layers: Mapping[str, LayerStatistics], network: nn.Module) -> dict[str, LayerStatistics]:
    """Give the statistics of BatchNorm inputs the running means and variances, keeping the correlations.

    Statistics of other points or views are passed on as they are.

    Raises:
        ValueError: if a layer's number of channels is not the network's.

    """
    running = {f"{Point(name, 'input')}:{CHANNELS.name}": _running(layer) for name, layer in _tracking(network)}
    rescaled = {}
    for key, layer in layers.items():
        if key in running and len(running[key][0]) != layer.dim:
            channels = len(running[key][0])
            raise ValueError(f"statistics of another network: '{key}' has {layer.dim} channels, not {channels}")
        rescaled[key] = layer.rescale(*running[key]) if key in running else layer
    return rescaled


def _tracking(network: nn.Module) -> list[tuple[str, _BatchNorm]]:
    return [
        (name, module)
        for name, module in network.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]


def _running(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean.detach(), layer.running_var.detach().clamp_min(layer.eps)


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
