"""Parts that methods share: old classes as Gaussians that follow the network, and a head balanced on them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from remix.learning.engine import Engine
from remix.learning.items import TensorReplay
from remix.learning.stage import Batch, Work
from remix.networks.probe import evaluating
from remix.statistics import ClassGaussians, ClassMeter, fit_drift, run_meters

__all__ = ["balance_head_on_gaussians", "drifted_gaussians", "shifted_gaussians"]

_MOST_SCALED = 2.0  # that the spread of a feature may grow or shrink in a step: a few dreams may tell more by chance


def drifted_gaussians(engine: Engine) -> ClassGaussians:
    """The Gaussians of the old classes, moved as the features of the new images moved in this task.

    Pseudo-samples would also tell how features move, but of themselves: real images of other classes are the better
    witnesses of what became of real images.

    Args:
        engine: in a later task, its backbone trained.

    """
    assert engine.teacher is not None
    assert engine.present is not None
    assert engine.memory.gaussians is not None
    before, after = [], []
    networks = engine.teacher, engine.student
    with torch.no_grad(), evaluating(networks[0]), evaluating(networks[1]), engine.team.precision():
        for items, _ in engine.images(engine.present):
            before.append(networks[0].backbone.pooled(*items).float())
            after.append(networks[1].backbone.pooled(*items).float())
    return engine.memory.gaussians.moved(fit_drift(torch.cat(before), torch.cat(after)))


def balance_head_on_gaussians(engine: Engine) -> Work:
    """The head alone, on new images and as many features of every old class, drawn from its drifted Gaussian.

    A head that is balanced on pseudo-samples may also learn to tell pseudo-samples from photographs, which is of no use
    later.
    """
    head, gaussians = engine.student.head, drifted_gaussians(engine)

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
