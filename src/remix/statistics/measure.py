"""One pass of data through a frozen network, watched by any number of meters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from remix.networks import Backbone, Items
from remix.networks.hooks import Hooks, Point, check_points
from remix.networks.probe import evaluating

__all__ = ["Batch", "Meter", "NonFiniteActivationError", "require_finite", "run_meters"]

Batch = Tensor | Sequence[Any]
"""Images (N, C, H, W), or a pair of images and labels (N,), as data loaders give them; or `Items` in their place."""


class Meter(Protocol):
    """Something that learns from the activations at its points, one batch after another."""

    points: list[Point]

    def update(self, captured: Mapping[Point, Tensor], labels: Tensor | None) -> None:
        """Take in the activations of one batch at ``points``, and its labels (N,) if there are any."""
        ...


def run_meters(network: nn.Module, batches: Iterable[Batch], meters: Sequence[Meter]) -> int:
    """Send every batch once through the network, in eval mode and without gradients, and show it to the meters.

    The data should be un-augmented. Every module has its own train or eval mode again afterwards.

    Args:
        network: a backbone or any module that takes images; it is moved nowhere, and neither are the batches.
        batches: images, or pairs of images and labels.
        meters: what measures.

    Returns:
        the number of images seen.

    Raises:
        ValueError: for a point the network does not have, no batches at all, a module that runs more than once or not
            at all, and activations that are not finite (the message names the first such layer).

    """
    points = check_points(network, dict.fromkeys(point for meter in meters for point in meter.points))
    run = network.features if isinstance(network, Backbone) else network
    images_seen = 0
    with evaluating(network), Hooks(network, points) as hooks:
        for number, batch in enumerate(batches):
            received, labels = (batch, None) if isinstance(batch, Tensor) else (batch[0], _labels(batch))
            items = received if isinstance(received, Items) else Items(received)
            hooks.clear()
            run(*items) if items.start else run(items.x)
            captured = _captured(hooks, number)
            for meter in meters:
                meter.update({point: captured[point] for point in meter.points}, labels)
            images_seen += len(items.x)
    if not images_seen:
        raise ValueError("batches is empty: nothing was measured")
    return images_seen


def _labels(batch: Sequence[Any]) -> Tensor | None:
    return batch[1] if len(batch) > 1 else None


def _captured(hooks: Hooks, number: int) -> dict[Point, Tensor]:
    """The activations of one run, checked in the order in which data reached them."""
    for point in hooks.points:
        if hooks.runs(point) == 0:
            raise ValueError(
                f"module {point.module!r} does not run when the network does, so '{point}' cannot be measured: if its "
                "parts are called one by one, watch the first or the last of them"
            )
        if hooks.runs(point) > 1:
            raise ValueError(
                f"module {point.module!r} ran {hooks.runs(point)} times in one pass: statistics need one that runs "
                "exactly once"
            )
    captured = {point: hooks[point] for point in hooks}
    for point, tensor in captured.items():
        require_finite(point, tensor, number)
    return captured


class NonFiniteActivationError(ValueError):
    """NaN or infinite activations; ``point`` says where."""

    def __init__(self, point: Point, message: str) -> None:
        super().__init__(message)
        self.point = point


def require_finite(point: Point, activation: Tensor, batch: int) -> None:
    """Check an activation.

    Raises:
        NonFiniteActivationError: naming the layer, the batch and the first bad image.

    """
    # A sum of finite numbers may overflow, so only a suspicious sum is looked at closely.
    if bool(torch.isfinite(activation.sum())):
        return
    bad = ~torch.isfinite(activation)
    if bool(bad.any()):
        first = int(bad.flatten(1).any(1).nonzero()[0]) if bad.dim() > 1 else 0
        raise NonFiniteActivationError(
            point,
            f"activations at '{point}' hold {int(bad.sum())} NaN or infinite values in batch {batch}, first in image "
            f"{first}: check the images and the weights of the network up to there",
        )
