"""Whether statistics belong to a network."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from remix.networks import Backbone
from remix.networks.hooks import Hooks, check_points
from remix.networks.probe import evaluating, probe_images
from remix.statistics.layers import LayerStatistics

__all__ = ["check_layers"]


def check_layers(
    layers: Mapping[str, LayerStatistics], network: nn.Module, input_shape: tuple[int, int, int] | None = None
) -> Tensor | None:
    """Check that every layer exists in the network and has as many coordinates as its statistics.

    The network is run once on two random images; nothing in it changes.

    Args:
        layers: statistics by key.
        network: a backbone, or any module that takes images.
        input_shape: (C, H, W) of one image; known already if the network has an ``input_shape``.

    Returns:
        what the network gave (features, if it is a backbone); None without layers, when it is not run.

    Raises:
        ValueError: naming the first layer that differs, and how.

    """
    if not layers:
        return None
    shape = input_shape or getattr(network, "input_shape", None)
    if shape is None:
        raise ValueError(f"{type(network).__name__} does not say its input_shape: give input_shape=(C, H, W)")
    name = type(network).__name__
    try:
        points = check_points(network, dict.fromkeys(layer.point for layer in layers.values()))
    except ValueError as error:
        raise ValueError(f"these are the statistics of another network: {error}") from error
    run = network.features if isinstance(network, Backbone) else network
    with evaluating(network), Hooks(network, points) as hooks:
        given: Tensor = run(probe_images(network, shape))
    for key, layer in layers.items():
        if layer.point not in hooks:
            raise ValueError(f"these are the statistics of another network: '{layer.point}' is never reached in {name}")
        found = tuple(hooks[layer.point].shape[1:])
        try:
            dim = layer.view.dim(found)
        except ValueError as error:
            raise ValueError(f"these are the statistics of another network: at '{key}', {error}") from error
        if dim != layer.dim:
            raise ValueError(
                f"these are the statistics of another network: '{key}' has {layer.dim} coordinates, in {name} it has "
                f"{dim} (activations {found})"
            )
    return given
