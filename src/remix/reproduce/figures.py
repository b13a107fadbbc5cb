"""The paper's two drawings from real tensors: the pipeline, and how the covariance is built.

Both show a small network that a run has trained on the handwritten digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from torch import Tensor
from torch.nn.functional import pad

from remix.data import ImageDataset
from remix.experiments.config import resolve
from remix.experiments.plan import load_tasks
from remix.inversion import Knowledge, PriorSettings, balanced_labels, feature_targets, frozen, invert_layerwise
from remix.laplace import LaplaceNormal
from remix.learning import Model
from remix.networks.hooks import Hooks
from remix.reproduce.needed_runs import need_runs
from remix.reproduce.result_files import new_figure, tidy
from remix.reproduce.targets import Listener, Reproduction
from remix.reproduce.trained import one_task, open_trained
from remix.statistics import LayerStatistics, rescale_to_batchnorm
from remix.support.files import written_whole

__all__ = ["TAKES", "reproduce"]

TAKES = ("runs", "jobs", "finished", "dry_run")
_PRESET = "digits"
_IMAGES = 200  # dreamed together: their statistics are those of a batch
_TOLD = (
    "Forward: real images, what every block makes of one of them, and features. Only statistics are kept.",
    "Back, block by block, held to a diagonal in every block (PMI): channels are taken for uncorrelated.",
    "Back, held to a Laplace covariance too (REMIX): correlations of channels in the order of the fitted line, "
    "red above 0, blue below.",
)
_INK, _GREY, _BLUE, _ORANGE = "#212529", "#868e96", "#1971c2", "#e8590c"


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    runs, complete = need_runs(replace(wanted, seeds="0"), [one_task(_PRESET)], listener)
    if not runs:
        return complete
    shown = _see(open_trained(runs[0]), load_tasks(runs[0].config.data, None)[0].train)
    wanted.out.mkdir(parents=True, exist_ok=True)
    for name, figure in (("pipeline", _pipeline(shown)), ("sigma", _sigma(shown))):
        with written_whole(wanted.out / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=150)
    listener.say(f"written  {wanted.out}/pipeline.png, sigma.png")
    return complete


# --- what is shown ---


@dataclass(frozen=True)
class _Layer:
    """Where statistics are kept: the fitted normal, and the measured covariance (D, D) of the same activations."""

    key: str
    normal: LaplaceNormal
    measured: Tensor

    @property
    def order(self) -> Tensor:
        """The channels along the line on which the fit has put them."""
        return self.normal.coord.argsort()


@dataclass(frozen=True)
class _Shown:
    """What is drawn: nine images (9, H, W) within 0..1, real and dreamed with a diagonal and with Laplace covariances;
    the maps that every block makes of one real image; the layers; and features (N, D) with labels, real and sought.
    """

    real: Tensor
    dreams: list[Tensor]
    maps: list[Tensor]
    layers: list[_Layer]
    features: tuple[Tensor, Tensor]
    targets: tuple[Tensor, Tensor]


def _see(model: Model, data: ImageDataset) -> _Shown:
    """Run real images, and dream."""
    backbone, memory, tell = model.classifier.backbone, model.memory, model.preprocessing.normalisation
    assert memory is not None
    assert memory.gaussians is not None
    assert isinstance(data.images, Tensor)
    kept = [layer for layer in memory.layers.values() if layer.covariances]
    points = [backbone.point(number, "output") for number in range(len(backbone.blocks()))]
    first = [int((data.labels == label).nonzero()[0]) for label in range(9)]
    with torch.no_grad(), frozen(backbone), Hooks(backbone, [*points, *(layer.point for layer in kept)]) as hooks:
        features = backbone.pooled(tell.normalise(data.images))
        maps = [hooks[point][first[3]] for point in points]
        rows = [layer.view.rows(hooks[layer.point]) for layer in kept]
    layers = [_Layer(layer.key, _laplace(layer), torch.cov(one.T)) for layer, one in zip(kept, rows, strict=True)]
    labels = balanced_labels(range(len(model.classes)), _IMAGES)
    targets = feature_targets(labels, memory.gaussians, memory.selectors, torch.Generator().manual_seed(0))
    assert targets.features is not None
    settings: Any = resolve(_PRESET, method="remix").settings
    known = rescale_to_batchnorm(memory.layers, backbone)
    knowledge = Knowledge(backbone, known, model.classifier.head, [layer.key for layer in kept])
    dreams = []
    for prior in (PriorSettings("none"), settings.inversion.prior):
        inversion = replace(settings.inversion, prior=prior)
        found = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), inversion).images
        dreams.append(tell.denormalise(found[:9])[:, 0].float() / 255)
    real = data.images[first, 0].float() / 255
    return _Shown(real, dreams, maps, layers, (features, data.labels), (targets.features, labels))


def _laplace(layer: LayerStatistics) -> LaplaceNormal:
    normal = layer.prior(next(iter(layer.covariances)))
    assert isinstance(normal, LaplaceNormal)
    return normal


# --- figure 1 ---


def _pipeline(shown: _Shown) -> Figure:
    """Forward in the first row; in the others what is kept of every layer, and the way back from features to images."""
    columns = len(shown.layers) + 2
    figure = new_figure(2.1 * columns, 7.2)
    figure.set_layout_engine("none")  # places are fixed: arrows go between them
    room = {"left": 0.02, "right": 0.98, "top": 0.9, "bottom": 0.02, "wspace": 0.3, "hspace": 0.42}
    axes = figure.subplots(3, columns, gridspec_kw=room)
    _tiles(axes[0, 0], shown.real, "real images")
    _scatter(axes[0, -1], shown.features, shown.features[0], "features, by class")
    for place, (maps, layer) in enumerate(zip(shown.maps, shown.layers, strict=True), start=1):
        _tiles(axes[0, place], _rescaled(maps[:9]), f"block {place}: 9 of {len(maps)} maps")
        order = layer.order
        _heat(axes[1, place], torch.eye(len(order)), f"{len(order)} variances")
        fitted = _correlation(layer.normal.covariance.to_dense())[order][:, order]
        _heat(axes[2, place], fitted, f"{len(order)} x {len(order)}, by 3 x {len(order)} numbers")
    for row, dreams in enumerate(shown.dreams, start=1):
        _tiles(axes[row, 0], dreams, "synthetic images")
        _scatter(axes[row, -1], shown.targets, shown.features[0], "class Gaussians")
    for row, words, colour in zip(axes, _TOLD, (_GREY, _ORANGE, _BLUE), strict=True):
        _arrows(figure, row, colour, back=words.startswith("Back"))
        figure.text(0.02, row[0].get_position().y1 + 0.05, words, fontsize=11, color=colour, weight="bold")
    return figure


def _arrows(figure: Figure, row: Sequence[Axes], colour: str, back: bool) -> None:
    """Between neighbours."""
    for left, right in pairwise(row):
        ends = [(left.get_position().x1, 0.004), (right.get_position().x0, -0.004)]
        height = (left.get_position().y0 + left.get_position().y1) / 2
        start, end = [(x + gap, height) for x, gap in (reversed(ends) if back else ends)]
        figure.add_artist(
            FancyArrowPatch(start, end, transform=figure.transFigure, color=colour, arrowstyle="-|>", mutation_scale=14)
        )


def _tiles(axis: Axes, images: Tensor, title: str) -> None:
    """Nine images (9, H, W) within 0..1 in a square, with a seam of an eighth of an image between them."""
    zoom = 8 // min(8, images.shape[-1])
    large = images.repeat_interleave(zoom, -1).repeat_interleave(zoom, -2)
    framed = pad(large, (0, 1, 0, 1), value=torch.nan)
    rows = [torch.cat(list(framed[start : start + 3]), -1) for start in (0, 3, 6)]
    page = torch.cat(rows)[:-1, :-1].numpy()
    axis.imshow(page, cmap=colormaps["gray"].with_extremes(bad="#dee2e6"), vmin=0, vmax=1)
    _plain(axis, title)


def _rescaled(maps: Tensor) -> Tensor:
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp_min(1e-6)


def _heat(axis: Axes, matrix: Tensor, title: str, most: float | None = 1.0) -> None:
    """Red above 0, blue below, or, without a bound, dark for small numbers."""
    if most is None:
        axis.imshow(matrix.numpy(), cmap="viridis_r")
    else:
        axis.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
    _plain(axis, title)


def _plain(axis: Axes, title: str) -> None:
    axis.set_title(title, fontsize=9, color=_INK)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color("#ced4da")


def _scatter(axis: Axes, shown: tuple[Tensor, Tensor], basis: Tensor, title: str) -> None:
    """Features (N, D) with labels, on the two main axes of others."""
    features, labels = shown
    middle = basis.mean(0)
    axes = torch.linalg.svd(basis - middle, full_matrices=False).Vh[:2]
    spots = ((features - middle) @ axes.T).numpy()
    axis.scatter(spots[:, 0], spots[:, 1], c=labels.numpy(), cmap="tab10", s=4, alpha=0.6, lw=0)
    _plain(axis, title)


def _correlation(matrix: Tensor) -> Tensor:
    scale = matrix.diagonal().rsqrt()
    return matrix * scale * scale[:, None]


# --- figure 2 ---


def _sigma(shown: _Shown) -> Figure:
    """From the coordinates to the covariance of a layer, step by step, beside the measured one."""
    layer = shown.layers[2]
    order = layer.order
    covariance = layer.normal.covariance
    coord, weight, diag = (vector[order] for vector in (covariance.coord, covariance.weight, covariance.diag))
    distance = (coord[:, None] - coord).abs()
    kernel = torch.exp(-distance)
    low = weight[:, None] * kernel * weight
    sigma, measured = low + torch.diag(diag), layer.measured[order][:, order]
    assert torch.allclose(sigma, covariance.to_dense()[order][:, order], rtol=1e-3, atol=1e-5)
    most = float(measured.abs().max()) / 2
    figure = new_figure(12.5, 6.9)
    (line, far, near, bars), (low_rank, own, whole, real) = figure.subplots(2, 4)
    places = range(len(coord))
    line.scatter(coord.tolist(), places, c=places, cmap="viridis", s=22)
    line.invert_yaxis()
    tidy(line, "1.  coordinates $a_i$: every channel on a line", "$a_i$", "channel")
    _heat(far, distance, "2.  distances $|a_i - a_j|$", most=None)
    _heat(near, kernel, "3.  $K_{ij} = \\exp(-|a_i - a_j|)$")
    bars.barh(places, weight.tolist(), color=[_BLUE if value < 0 else "#c92a2a" for value in weight], height=0.8)
    bars.invert_yaxis()
    tidy(bars, "4.  weights $w_i$, of either sign", "$w_i$")
    _heat(low_rank, low, "5.  $\\mathrm{diag}(w)\\, K\\, \\mathrm{diag}(w)$", most)
    _heat(own, torch.diag(diag), "6.  $+\\ \\mathrm{diag}(d)$", most)
    _heat(whole, sigma, f"7.  $= \\Sigma$, {3 * len(coord)} numbers", most)
    _heat(real, measured, f"measured: {len(coord) * (len(coord) + 1) // 2} numbers", most)
    figure.suptitle(
        f"The covariance of the {len(coord)} channels at {layer.key}, from the run on digits", fontsize=11, color=_GREY
    )
    return figure
