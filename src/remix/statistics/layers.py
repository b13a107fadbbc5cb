"""What is remembered of the activations of a network, place by place."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

from remix.networks import Backbone
from remix.networks.hooks import Hooks, Point, check_points
from remix.networks.probe import evaluating, probe_images
from remix.networks.views import View, as_view
from remix.statistics.covariance import Covariance, covariance_class
from remix.statistics.moments import mixture
from remix.statistics.records import is_count
from remix.statistics.statistic import Statistic, StoredItem, Tensors, integers, register_statistic, size_of

if TYPE_CHECKING:
    from remix.laplace import LaplaceNormal

__all__ = ["LayerStatistics", "Layers", "check_layers", "merge_layers"]


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """Mean, variances and, if measured, covariances of the activations at one point, read through one view.

    Attributes:
        point: where.
        view: how activations become rows of D coordinates.
        shape: of one activation, without the batch axis.
        images: images measured; 0 where the numbers are a network's own running averages.
        mean: (D,).
        variance: (D,), positive.
        covariances: by kind.

    Raises:
        ValueError: if shapes disagree, numbers are not finite, or a variance is not positive.

    """

    point: Point
    view: View
    shape: tuple[int, ...]
    images: int
    mean: Tensor
    variance: Tensor
    covariances: Mapping[str, Covariance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dim = self.view.dim(self.shape)
        if min(self.shape) < 1:
            raise ValueError(f"shape at '{self.key}' must be positive, got {self.shape}")
        for name, value in (("mean", self.mean), ("variance", self.variance)):
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != (dim,):
                raise ValueError(f"{name} at '{self.key}' must be a floating-point tensor of shape {(dim,)}")
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} at '{self.key}' must be finite")
        if not bool((self.variance > 0).all()):
            raise ValueError(f"variance at '{self.key}' must be positive")
        if not is_count(self.images):
            raise ValueError(f"images at '{self.key}' must be a number of images, got {str(self.images)[:60]}")
        for covariance in self.covariances.values():
            try:
                covariance.check(dim)
            except ValueError as error:
                raise ValueError(f"the {covariance.title} at '{self.key}' must {error}") from error
        tensors = [tensor for one in self.covariances.values() for tensor in one.tensors().values()]
        if any(tensor.dtype != self.mean.dtype for tensor in (self.variance, *tensors)):
            raise ValueError(f"mean, variance and covariance at '{self.key}' must have one precision")

    @property
    def dim(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def samples(self) -> int:
        """Rows that were measured: images times rows per image."""
        return self.images if self.view.per_image else self.images * (math.prod(self.shape) // self.dim)

    @property
    def key(self) -> str:
        """Point and view: ``"stage_1.0.bn1:input:channels"``."""
        return f"{self.point}:{self.view.name}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The priors that `prior` can give."""
        return ("diagonal", *self.covariances)

    @property
    def normal(self) -> LaplaceNormal | None:
        """That of the kind "laplace", or None."""
        found: Any = self.covariances.get("laplace")
        return None if found is None else found.normal

    @property
    def covariance(self) -> Tensor | None:
        """(D, D) of the kind "dense", as measured, not shrunk; or None."""
        found: Any = self.covariances.get("dense")
        return None if found is None else found.matrix

    def prior(self, kind: str) -> Distribution:
        """The distribution of one row (D,) under a covariance of this kind, or "diagonal": independent coordinates.

        Raises:
            ValueError: if this kind was not measured, or the covariance is none.

        """
        if kind in self.covariances:
            return self.covariances[kind].distribution(self)
        if kind == "diagonal":
            return Independent(Normal(self.mean, self.variance.sqrt(), validate_args=False), 1, validate_args=False)
        raise ValueError(f"there is no {kind!r} prior at '{self.key}'; measured are: {', '.join(self.kinds)}")

    def rescale(self, mean: Tensor, variance: Tensor) -> LayerStatistics:
        """The same correlations with another mean (D,) and other variances (D,), positive.

        Raises:
            ValueError: for wrong shapes or values, or a covariance in a basis other than the coordinates.

        """
        mean, variance = mean.detach().to(self.mean, copy=True), variance.detach().to(self.variance, copy=True)
        try:
            covariances = {kind: one.rescale(mean, variance) for kind, one in self.covariances.items()}
        except ValueError as error:
            raise ValueError(f"'{self.key}' {error}") from error
        return replace(self, mean=mean, variance=variance, covariances=covariances)

    def to(self, device: torch.device | str) -> LayerStatistics:
        """The same statistics on another device."""
        covariances = {kind: covariance.to(device) for kind, covariance in self.covariances.items()}
        return replace(self, mean=self.mean.to(device), variance=self.variance.to(device), covariances=covariances)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What is stored: by kind in words, tensors by name."""
        kinds = {"moments": {"mean": self.mean, "variance": self.variance}}
        return kinds | {self.covariances[kind].title: self.covariances[kind].tensors() for kind in self.kinds[1:]}


@register_statistic
class Layers(Mapping[str, LayerStatistics], Statistic):
    """The statistics of layers, by their keys; they cannot be changed.

    Raises:
        TypeError: for anything else than `LayerStatistics`.
        ValueError: for one under another key than its own.

    """

    name: ClassVar[str] = "layers"

    def __init__(self, layers: Mapping[str, LayerStatistics] | None = None) -> None:
        self._layers = dict(layers or {})
        for key, layer in self._layers.items():
            if not isinstance(layer, LayerStatistics):
                raise TypeError(f"layers must map keys to LayerStatistics, got {type(layer).__name__}")
            if key != layer.key:
                raise ValueError(f"layers must be stored by their own keys: {key!r} holds '{layer.key}'")

    def __getitem__(self, key: str) -> LayerStatistics:
        return self._layers[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def tensors(self) -> dict[str, Tensor]:
        """Mean, variance and covariances of each."""
        return {
            f"{key}/{name}": tensor
            for key, layer in self._layers.items()
            for part in layer.tensors().values()
            for name, tensor in part.items()
        }

    def describe(self) -> list[dict[str, Any]]:
        """Where and how each was measured."""
        found = []
        for layer in self._layers.values():
            described: dict[str, Any] = {
                "point": str(layer.point), "view": layer.view.name, "shape": list(layer.shape), "images": layer.images,
                "kinds": list(layer.kinds),
            }  # fmt: skip
            for covariance in layer.covariances.values():
                described |= covariance.describe()
            found.append(described)
        return found

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> Layers:
        """Make them again."""
        layers = [_layer(one, tensors) for one in described]
        return cls({layer.key: layer for layer in layers})

    def merge(self, other: Mapping[str, LayerStatistics], classes: tuple[int, int]) -> Layers:
        """Weighted by numbers of classes, see `merge_layers`."""
        return Layers(merge_layers([(classes[0], self), (classes[1], other)]))

    def to(self, device: torch.device | str) -> Layers:
        """The same on another device."""
        return Layers({key: layer.to(device) for key, layer in self._layers.items()})

    def without(self, labels: Collection[int]) -> tuple[Layers, str]:
        """All of it stays: activations of all classes are measured together."""
        told = "means, variances and covariances of activations are of the images of all classes together"
        return self, told if self._layers else ""

    def stored(self) -> list[StoredItem]:
        """Of each layer, by kind."""
        return [
            StoredItem(
                kind,
                key,
                ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()),
                size_of(list(tensors.values())),
            )
            for key, layer in self._layers.items()
            for kind, tensors in layer.tensors().items()
        ]


def _layer(described: Any, tensors: Tensors) -> LayerStatistics:
    point, view, shape = Point.parse(described["point"]), as_view(described["view"]), integers(described["shape"])
    own = tensors.under(f"{point}:{view.name}/")
    kinds = [str(kind) for kind in described["kinds"] if kind != "diagonal"]
    covariances = {kind: covariance_class(kind).from_tensors(own, described) for kind in kinds}
    mean, variance = own.pop("mean"), own.pop("variance")
    return LayerStatistics(point, view, shape, integers([described["images"]])[0], mean, variance, covariances)


def merge_layers(parts: Sequence[tuple[float, Mapping[str, LayerStatistics]]]) -> dict[str, LayerStatistics]:
    """The statistics of all tasks together, each weighted by its number of classes.

    With shares c_i = Y_i / sum Y, means mu_i and covariances S_i, the result has mean mu = sum c_i mu_i and covariance
    sum c_i (S_i + (mu_i - mu)(mu_i - mu)'). That is the paper's aggregation, except that the paper leaves out the
    spread of the tasks' means.

    Args:
        parts: pairs (number of classes, statistics by key), all of one network.

    Raises:
        ValueError: for no parts, a number of classes that is not positive, or statistics of different networks (the
            message names the first difference).

    """
    if not parts:
        raise ValueError("nothing to merge: parts is empty")
    for classes, layers in parts:
        if not classes > 0:
            raise ValueError(f"numbers of classes must be positive, got {classes}")
        difference = _first_difference(parts[0][1], layers)
        if difference:
            raise ValueError(f"the statistics to merge belong to different networks: {difference}")
    if len(parts) == 1:
        return dict(parts[0][1])
    return {key: _merge([(classes, layers[key]) for classes, layers in parts]) for key in parts[0][1]}


def _first_difference(one: Mapping[str, LayerStatistics], other: Mapping[str, LayerStatistics]) -> str | None:
    """Where two sets of statistics differ in their layers, in words, or None."""
    for key in [*one, *other]:
        if key not in other or key not in one:
            return f"'{key}' is in only one of them"
        a, b = one[key], other[key]
        if a.dim != b.dim:
            return f"'{key}' has {a.dim} coordinates in one and {b.dim} in the other"
        if {*a.kinds} != {*b.kinds}:
            return f"'{key}' has the covariances {', '.join(a.kinds)} in one and {', '.join(b.kinds)} in the other"
        for kind in a.kinds[1:]:
            if difference := a.covariances[kind].difference(b.covariances[kind]):
                return f"'{key}' {difference}"
    return None


def _merge(parts: list[tuple[float, LayerStatistics]]) -> LayerStatistics:
    first = parts[0][1]
    moments = mixture([(weight, layer.mean, layer.variance) for weight, layer in parts])
    return replace(
        first,
        images=sum(layer.images for _, layer in parts),
        mean=moments.mean.to(first.mean),
        variance=moments.variance().to(first.variance),
        covariances={kind: covariance_class(kind).merge(parts) for kind in first.kinds[1:]},
    )


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
