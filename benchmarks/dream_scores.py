"""Numbers that say how good dreams are, all from a judge's features or from the statistics of the network itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.dream_data import Images
from benchmarks.dream_networks import PlainJudge, features_of
from remix.networks import Backbone
from remix.statistics import Hooks, LayerStatistics


@dataclass
class Reference:
    """Real images as the judge sees them: features (N, D) and labels (N,)."""

    features: Tensor
    labels: Tensor

    @classmethod
    def of(cls, judge: PlainJudge, images: Images) -> Reference:
        return cls(features_of(judge, images.pixels), images.labels)


def score(judge: PlainJudge, dreams: Images, reference: Reference) -> dict[str, float]:
    """Compare dreams with real images.

    ``accuracy``: part of the dreams that the judge gives the label they were dreamed for. ``cross_entropy``: the same,
    graded. ``frechet``: distance of the judge's features to those of the reference, both taken as Gaussian.
    ``diversity``: mean distance of two dreams of one class in the judge's features, over the same of the reference.
    """
    features = features_of(judge, dreams.pixels)
    logits = judge.head(features)
    return {
        "accuracy": float((logits.argmax(1) == dreams.labels).double().mean()),
        "cross_entropy": float(cross_entropy(logits, dreams.labels)),
        "frechet": frechet(features, reference.features),
        "diversity": spread(features, dreams.labels) / spread(reference.features, reference.labels),
    }


def frechet(a: Tensor, b: Tensor) -> float:
    """The Frechet distance of two sets of rows (N, D), (M, D), as Gaussians: |m - m'|^2 + tr(S + S' - 2 (S S')^1/2)."""
    a, b = a.double(), b.double()
    s, t = torch.cov(a.T), torch.cov(b.T)
    values, vectors = torch.linalg.eigh(s)
    root = vectors * values.clamp_min(0).sqrt() @ vectors.T
    cross = torch.linalg.eigvalsh(root @ t @ root).clamp_min(0).sqrt().sum()
    return float((a.mean(0) - b.mean(0)).square().sum() + s.trace() + t.trace() - 2 * cross)


def spread(features: Tensor, labels: Tensor) -> float:
    """Mean Euclidean distance of two different rows (N, D) of one class, averaged over classes."""
    means = []
    for label in labels.unique():
        rows = features[labels == label]
        means.append(torch.pdist(rows).mean())
    return float(torch.stack(means).mean())


@torch.no_grad()
def likelihood(
    backbone: Backbone, layers: Mapping[str, LayerStatistics], kind: str, pixels: Tensor, size: int = 100
) -> dict[str, float]:
    """Of images under the Gaussians of a kind, both averaged over layers.

    ``gain``: log-likelihood in nats per dimension, above the diagonal Gaussian with the same mean and variances.
    ``quadratic``: mean Mahalanobis form over dimension; 1 for data the statistics were measured on, less if dreams
    have collapsed towards the mean.
    """
    points = list(dict.fromkeys(layer.point for layer in layers.values()))
    diagonal = {key: layer.prior("diagonal") for key, layer in layers.items()}
    priors = diagonal if kind == "diagonal" else {key: layer.prior(kind) for key, layer in layers.items()}
    gains, forms = [], []
    with Hooks(backbone, points) as hooks:  # type: ignore[arg-type]
        for part in pixels.split(size):
            hooks.clear()
            backbone.features(part)
            gain, form = [], []
            for key, layer in layers.items():
                rows = layer.view.rows(hooks[layer.point])
                log_prob = priors[key].log_prob(rows).mean()
                gain.append((log_prob - diagonal[key].log_prob(rows).mean()) / layer.dim)
                form.append((-2 * log_prob - 2 * priors[key].entropy()) / layer.dim + 1)
            gains.append(torch.stack(gain).mean() * len(part))
            forms.append(torch.stack(form).mean() * len(part))
    count = len(pixels)
    return {"gain": float(sum(gains)) / count, "quadratic": float(sum(forms)) / count}
