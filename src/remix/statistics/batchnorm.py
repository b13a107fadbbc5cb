"""The statistics that BatchNorm layers keep by themselves."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from remix.networks.hooks import Point
from remix.networks.views import CHANNELS
from remix.statistics.layers import LayerStatistics

__all__ = ["batchnorm_points", "batchnorm_statistics", "rescale_to_batchnorm"]


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
