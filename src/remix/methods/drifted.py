"""Parts that methods share: old classes as Gaussians that follow the network, and a head balanced on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.items import TensorReplay
from remix.learning.stage import Batch, Work
from remix.networks import Pooling
from remix.networks.probe import evaluating
from remix.statistics import ClassGaussians, ClassMeter, Drift, MlpDrift, class_gaussians, fit_drift, run_meters
from remix.statistics.class_gaussians import as_correlation

__all__ = [
    "balance_head_on_gaussians", "drawn_through", "drifted_gaussians", "learn_map", "paired_dreams",
    "paired_features", "shifted_gaussians", "shrunk", "student_features", "tied",
]  # fmt: skip

_MOST_SCALED = 2.0  # that the spread of a feature may grow or shrink in a step: a few dreams may tell more by chance


def drifted_gaussians(engine: Engine) -> ClassGaussians:
    """The Gaussians of the old classes, moved as the features of the new images moved in this task.

    Pseudo-samples would also tell how features move, but of themselves: real images of other classes are the better
    witnesses of what became of real images.

    Args:
        engine: in a later task, its backbone trained.

    """
    assert engine.present is not None
    assert engine.memory.gaussians is not None
    before, after, _ = paired_features(engine, engine.present)
    return engine.memory.gaussians.moved(fit_drift(before, after))


def paired_features(
    engine: Engine, data: ImageDataset, views: int = 1, at: Pooling | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Features (views N, D) of images by the network before this task, and as it is, and their labels.

    Args:
        engine: its backbone trained. In the first task there is no network before: the features are those of now.
        data: the images.
        views: the images as they are, and so many less one times cropped and mirrored at random.
        at: which features; by default the pooled output of the last block.

    """
    student, teacher = engine.student, engine.teacher or engine.student
    found: tuple[list[Tensor], list[Tensor], list[Tensor]] = [], [], []
    with torch.no_grad(), evaluating(teacher), evaluating(student), engine.team.precision():
        for view in range(views):
            for items, labels in engine.images(data, engine.generator if view else None):
                after = student.backbone.pooled(*items, at).float()
                found[0].append(after if engine.teacher is None else teacher.backbone.pooled(*items, at).float())
                found[1].append(after)
                found[2].append(labels)
    return torch.cat(found[0]), torch.cat(found[1]), torch.cat(found[2])


def paired_dreams(engine: Engine, at: Pooling | None = None) -> tuple[Tensor, Tensor]:
    """Features (N, D) of the pseudo-samples by the network before this task, and as it is."""
    replay, teacher = engine.replay, engine.teacher
    assert isinstance(replay, TensorReplay)
    assert teacher is not None
    found: tuple[list[Tensor], list[Tensor]] = [], []
    with torch.no_grad(), evaluating(teacher), evaluating(engine.student), engine.team.precision():
        for items, _ in replay.batches(500):
            found[0].append(teacher.backbone.pooled(*items, at).float())
            found[1].append(engine.backbone.pooled(*items, at).float())
    return torch.cat(found[0]), torch.cat(found[1])


def student_features(engine: Engine, data: ImageDataset) -> tuple[Tensor, Tensor]:
    """Features (N, D) of images, cropped and mirrored at random, by the network as it is, and their labels."""
    features, labels = [], []
    with torch.no_grad(), evaluating(engine.student), engine.team.precision():
        for items, known in engine.images(data, engine.generator):
            features.append(engine.backbone.pooled(*items).float())
            labels.append(known)
    return torch.cat(features), torch.cat(labels)


def drawn_through(
    gaussians: ClassGaussians,
    drift: Drift | MlpDrift | Callable[[Tensor], Tensor],
    draws: int,
    generator: torch.Generator,
) -> ClassGaussians:
    """The Gaussians of so many draws of every class, moved by any map: mean and covariance of what comes out."""
    labels = torch.tensor(gaussians.labels).repeat_interleave(draws)
    with torch.no_grad():  # class by class: a wide map needs much memory
        moved = torch.cat([drift(part) for part in gaussians.sample(labels, generator).split(draws)])
    found = class_gaussians(moved, labels, gaussians.correlations is not None)
    return replace(found, counts=gaussians.counts)


def learn_map(engine: Engine, map: nn.Module, loss: Callable[[Tensor, Tensor], dict[str, Tensor]]) -> Work:
    """A map alone, from features of new images before this task to those of the network as it is, which rests.

    Args:
        engine: in a later task, its backbone trained.
        map: (N, D) -> (N, D).
        loss: of what the map gives and of what it should give.

    """
    teacher = engine.teacher
    assert teacher is not None

    def losses(batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            before, after = teacher.backbone.pooled(*batch.real).float(), engine.pooled(batch.real)
        return loss(map(before), after)

    return Work([map], losses)


def balance_head_on_gaussians(engine: Engine, gaussians: ClassGaussians) -> Work:
    """The head alone, on new images and as many features of every old class, drawn from its Gaussian.

    A head that is balanced on pseudo-samples may also learn to tell pseudo-samples from photographs, which is of no use
    later.
    """
    head = engine.student.head

    def losses(batch: Batch) -> dict[str, Tensor]:
        real = engine.pooled(batch.real)
        each = -(-len(batch.labels) // engine.new_classes)
        old = torch.arange(engine.old_classes).repeat(each)
        drawn = gaussians.sample(old, engine.generator).to(real)
        labels = torch.cat([batch.labels, old.to(batch.labels)])
        return {"balanced": functional.cross_entropy(head(torch.cat([real, drawn])), labels)}

    return Work([head], losses)


def shifted_gaussians(engine: Engine, dreamed: ClassGaussians) -> ClassGaussians:
    """The Gaussians of the old classes, moved and scaled as the features of their dreams were in this task.

    Dreams lie nearer together than images do, so that a class that is measured on them shrinks with every step. How
    they moved from the old network to the new one is what they are fit to tell.

    Args:
        engine: in a later task, its backbone trained.
        dreamed: the Gaussians of the dreams now.

    """
    before, replay = engine.memory.gaussians, engine.replay
    assert before is not None
    assert engine.teacher is not None
    assert isinstance(replay, TensorReplay)
    teacher = engine.teacher.backbone
    meter = ClassMeter(teacher.point(-1, "output"), teacher.pool)
    run_meters(teacher, replay.batches(500), [meter])
    then = meter.gaussians()
    rows = before.rows(then.labels)
    scale = torch.where(then.std > 0, dreamed.std / then.std.clamp_min(1e-12), 1.0)
    std = before.std[rows] * scale.clamp(1 / _MOST_SCALED, _MOST_SCALED).to(before.std)
    mean = before.mean[rows] + (dreamed.mean - then.mean).to(before.mean)
    return ClassGaussians(then.labels, tuple(before.counts[int(row)] for row in rows), mean, std)


def shrunk(gaussians: ClassGaussians) -> ClassGaussians:
    """With the correlations of a class of n images, no more than its D features, multiplied by n / (n + D)."""
    if gaussians.correlation is None:
        return gaussians
    counts = torch.tensor(gaussians.counts).to(gaussians.mean)[:, None, None]
    share = torch.where(counts > gaussians.dim, 1.0, counts / (counts + gaussians.dim))
    correlation = gaussians.correlation * share
    correlation.diagonal(dim1=1, dim2=2).fill_(1)
    return replace(gaussians, correlation=correlation)


def tied(gaussians: ClassGaussians) -> ClassGaussians:
    """With one covariance for all classes: their mean."""
    assert gaussians.correlation is not None
    std = gaussians.std.double()
    mean = (std[:, :, None] * gaussians.correlation.double() * std[:, None, :]).mean(0)
    count, deviation = len(gaussians), mean.diagonal().clamp_min(0).sqrt().to(gaussians.std)
    correlation = as_correlation(mean).to(gaussians.correlation)
    return replace(gaussians, std=deviation.repeat(count, 1), correlation=correlation.repeat(count, 1, 1))
