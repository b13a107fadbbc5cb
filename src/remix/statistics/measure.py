"""Measuring layer statistics and whatever else, in one pass of data through a frozen network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from remix.networks import Backbone, Items
from remix.networks.hooks import Hooks, Point, check_points
from remix.networks.probe import evaluating
from remix.networks.views import View, as_view
from remix.statistics.covariance import Measured, covariance_class
from remix.statistics.layers import LayerStatistics
from remix.statistics.moments import Reservoir, RunningMoments

__all__ = [
    "Batch", "LayerMeter", "Meter", "NonFiniteActivationError",
    "measure_layers", "meters_by_view", "require_finite", "run_meters",
]  # fmt: skip

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


_KEPT_ROWS = 1000
# A variance this small beside the layer's mean variance is what rounding leaves of a constant.
_CONSTANT = 1e-12
_SMALLEST_DCT = 8  # height and width from which maps are fitted in the DCT basis

Transform = Literal["auto", "dct"] | None
_KEPT_NUMBERS = 1 << 26  # bound of a layer's reservoir: 256 MiB in float32


def measure_layers(
    network: nn.Module,
    batches: Iterable[Batch],
    points: Sequence[str | Point],
    view: str | View = "channels",
    kinds: Sequence[str] = ("laplace",),
    *,
    transform: Transform = "auto",
    rows: int | None = None,
    seed: int = 0,
) -> dict[str, LayerStatistics]:
    """Measure the statistics of several layers in one pass over un-augmented data.

    To measure several views, block inputs and class Gaussians in the same pass, make the meters and use `run_meters`.

    Args:
        network: a backbone or any module that takes images.
        batches: images (N, C, H, W), or pairs of images and labels.
        points: places such as ``"stage_1.0.bn1:input"``; see `batchnorm_points` and `block_input_points`.
        view: how an activation becomes rows.
        kinds: covariances to keep besides the variances, such as "laplace" and "dense"; see `covariance_kinds`.
        transform: of maps before the Laplace covariance: "dct", None, or "auto": the DCT for maps of 8 x 8 and more.
        rows: most rows kept in memory for fitting maps and views of more than 1,024 coordinates; by default 1,000, or
            as many as 256 MiB hold.
        seed: of the choice of those rows.

    Returns:
        statistics by key (``"stage_1.0.bn1:input:channels"``), in the order of ``points``.

    Raises:
        ValueError: see `run_meters`; and for an unknown kind or view, an activation the view cannot read, a layer in
            which nothing varies (such as the map of a single image), or "dense" with more than 1,024 coordinates.

    """
    meter = LayerMeter(points, view, kinds, transform=transform, rows=rows, seed=seed)
    run_meters(network, batches, [meter])
    return meter.statistics()


class LayerMeter:
    """A meter of layer statistics; arguments as in `measure_layers`."""

    def __init__(
        self,
        points: Sequence[str | Point],
        view: str | View = "channels",
        kinds: Sequence[str] = ("laplace",),
        *,
        transform: Transform = "auto",
        rows: int | None = None,
        seed: int = 0,
    ) -> None:
        self._kinds = {kind: covariance_class(kind) for kind in kinds if kind != "diagonal"}
        if transform not in ("auto", "dct", None):
            raise ValueError(f"transform must be 'auto', 'dct' or None, got {transform!r}")
        if rows is not None and rows < 2:
            raise ValueError(f"rows must be at least 2, got {rows}")
        self.points = [Point.parse(point) for point in points]
        self.view = as_view(view)
        self._transform, self._rows, self._seed = transform, rows, seed
        self._gauges: dict[Point, _Gauge] = {}

    def as_measured(self, layer: LayerStatistics) -> LayerStatistics | None:
        """Statistics from elsewhere as this meter would have measured them: without covariances that it does not keep.

        Returns:
            None if it does not look there, or keeps covariances that they do not have.

        """
        if layer.point not in self.points or layer.view != self.view or not {*self._kinds} <= {*layer.covariances}:
            return None
        return replace(layer, covariances={kind: layer.covariances[kind] for kind in self._kinds})

    def update(self, captured: Mapping[Point, Tensor], labels: Tensor | None = None) -> None:
        """Take in one batch of activations."""
        for point, activation in captured.items():
            shape = tuple(activation.shape[1:])
            if point not in self._gauges:
                self._gauges[point] = self._gauge(point, activation)
            gauge = self._gauges[point]
            if self.view.dim(shape) != gauge.moments.dim:
                raise ValueError(f"activations at '{point}' changed their shape from {gauge.shape} to {shape}")
            gauge.update(self.view.rows(activation), len(activation))

    def _gauge(self, point: Point, activation: Tensor) -> _Gauge:
        shape = tuple(activation.shape[1:])
        try:
            dim = self.view.dim(shape)
        except ValueError as error:
            raise ValueError(f"'{point}': {error}") from error
        layout = self.view.layout(shape)
        by_rows = []
        for kind in self._kinds.values():
            try:
                by_rows.append(kind.from_rows(dim, layout))
            except ValueError as error:
                raise ValueError(f"a {kind.title} at '{point}' {error}") from error
        count = self._rows or max(2, min(_KEPT_ROWS, _KEPT_NUMBERS // dim))
        moments = RunningMoments(dim, not all(by_rows), activation.device)
        return _Gauge(shape, activation.dtype, moments, Reservoir(count, dim, self._seed) if any(by_rows) else None)

    def statistics(self) -> dict[str, LayerStatistics]:
        """The statistics of what was seen so far, by key.

        Raises:
            ValueError: if nothing was seen, or nothing varies at a point.

        """
        statistics = {}
        for point in self.points:
            if point not in self._gauges:
                raise ValueError(f"nothing was measured at '{point}'")
            try:
                layer = self._statistics(point, self._gauges[point])
            except ValueError as error:
                raise ValueError(f"statistics at '{point}': {error}") from error
            statistics[layer.key] = layer
        return statistics

    def _statistics(self, point: Point, gauge: _Gauge) -> LayerStatistics:
        moments = gauge.moments
        variance = positive_variance(moments.variance(), gauge.images)
        covariance = positive_covariance(moments.covariance(), variance) if moments.has_covariance else None
        layout, reservoir = self.view.layout(gauge.shape), gauge.reservoir
        measured = Measured(
            moments.mean,
            variance,
            covariance,
            None if reservoir is None else reservoir.rows(),
            int(moments.weight),
            layout,
            self._basis(layout),
            gauge.dtype,
        )
        covariances = {kind: one.fit(measured) for kind, one in self._kinds.items()}
        mean, spread = moments.mean.to(gauge.dtype), variance.to(gauge.dtype)
        return LayerStatistics(point, self.view, gauge.shape, gauge.images, mean, spread, covariances)

    def _basis(self, layout: tuple[int, int, int] | None) -> Literal["dct"] | None:
        """Chosen by shape alone, never by the data: tasks in different bases could not be merged."""
        if layout is None or self._transform is None:
            return None
        return "dct" if self._transform == "dct" or min(layout[1:]) >= _SMALLEST_DCT else None


def meters_by_view(places: Iterable[tuple[Point, View]], kinds: Sequence[str] = ()) -> list[LayerMeter]:
    """Meters of statistics at places, one for those that are read alike."""
    by_view: dict[View, list[Point]] = {}
    for point, view in places:
        by_view.setdefault(view, []).append(point)
    return [LayerMeter(points, view, kinds) for view, points in by_view.items()]


class _Gauge:
    """Accumulators of one point."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, moments: RunningMoments, reservoir: Reservoir | None
    ) -> None:
        self.shape, self.moments, self.reservoir = shape, moments, reservoir
        self.dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.images = 0

    def update(self, rows: Tensor, images: int) -> None:
        self.moments.update(rows)
        if self.reservoir is not None:
            self.reservoir.update(rows)
        self.images += images


def positive_variance(variance: Tensor, images: int) -> Tensor:
    """Variances (D,) in which a channel that never varied is given a small one.

    It counts as if in one more image it had varied like an average channel: mean variance / (images + 1). All others
    are left exactly as they are.

    Raises:
        ValueError: if no channel varies.

    """
    average = variance.mean()
    if not bool(average > 0):
        raise ValueError("nothing varies, so there is no variance to remember: measure at least two different images")
    return torch.where(variance <= _CONSTANT * average, average / (images + 1), variance)


def positive_covariance(covariance: Tensor, variance: Tensor) -> Tensor:
    """The covariance (D, D) with the diagonal ``variance`` of `positive_variance`; constants are uncorrelated."""
    changed = variance != covariance.diagonal()
    kept = covariance.masked_fill(changed[:, None] | changed, 0.0)
    return kept + torch.diag(torch.where(changed, variance, 0.0))
