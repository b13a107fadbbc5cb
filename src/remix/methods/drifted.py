"""Old classes as Gaussians that drift with the network, and a head balanced on draws from them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from remix.learning.learner import Learner
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Stage
from remix.networks.probe import evaluating
from remix.statistics import ClassGaussians, fit_drift

__all__ = ["balance_head_on_gaussians", "drifted_gaussians"]


def drifted_gaussians(learner: Learner) -> ClassGaussians:
    """The Gaussians of the old classes, moved as the features of the new images moved in this task.

    Pseudo-samples would also tell how features move, but of themselves: real images of other classes are the better
    witnesses of what became of real images.

    Args:
        learner: in a later task, its backbone trained.

    """
    assert learner.teacher is not None
    assert learner.present is not None
    assert learner.memory.gaussians is not None
    before, after = [], []
    networks = learner.teacher, learner.student
    with torch.no_grad(), evaluating(networks[0]), evaluating(networks[1]), learner.team.precision():
        for images, _ in learner.images(learner.present):
            before.append(networks[0].backbone.pooled(images).float())
            after.append(networks[1].backbone.pooled(images).float())
    return learner.memory.gaussians.moved(fit_drift(torch.cat(before), torch.cat(after)))


def balance_head_on_gaussians(learner: Learner, sgd: Sgd) -> Stage:
    """The head alone, on new images and as many features of every old class, drawn from its drifted Gaussian.

    A head that is balanced on pseudo-samples may also learn to tell pseudo-samples from photographs, which is of no use
    later.
    """
    head, found = learner.student.head, list[ClassGaussians]()

    def measure() -> None:
        if not found:
            found.append(drifted_gaussians(learner))

    def terms(batch: Batch) -> dict[str, Tensor]:
        real = learner.pooled(batch.images)
        each = -(-len(batch.labels) // learner.new_classes)
        old = torch.arange(learner.old_classes).repeat(each)
        drawn = found[0].sample(old, learner.generator).to(real)
        labels = torch.cat([batch.labels, old.to(batch.labels)])
        return {"balanced": functional.cross_entropy(head(torch.cat([real, drawn])), labels)}

    return Stage("balance the head", [head], sgd, terms, on_epoch=measure)
