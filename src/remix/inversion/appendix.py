"""What only the paper's appendix has of layer-wise inversion; its authors' code does without.

The settings `paper` of `pmi` and `remix` use these parts; docs/methods.md says which element comes from where.
"""

from __future__ import annotations

import torch
from torch import Tensor

from remix.inversion.loop import Optimisation
from remix.inversion.losses import Classify, LabelMatch
from remix.inversion.settings import LayerwiseSettings
from remix.inversion.terms import Average, Loss, Seen, Term
from remix.inversion.variables import TensorVariable
from remix.networks import Backbone
from remix.statistics import LayerStatistics

__all__ = ["SquaredVariation", "move_by_labels", "spread_of_outputs"]


class SquaredVariation(Loss):
    """The image prior: over c, h < H and w < W, the sum of (x[c,h+1,w] - x[c,h,w])^2 + (x[c,h,w+1] - x[c,h,w])^2.

    Both sums stop one row and one column early, as the appendix writes them. The mean over images.
    """

    def __init__(self) -> None:
        def per_image(seen: Seen) -> Tensor:
            x = seen.variable
            corner = x[..., :-1, :-1]
            squares = (x[..., 1:, :-1] - corner).square() + (x[..., :-1, 1:] - corner).square()
            return squares.sum((1, 2, 3))

        super().__init__(Average(per_image))


def move_by_labels(
    features: Tensor, labels: Tensor, classify: Classify, backbone: Backbone, settings: LayerwiseSettings
) -> Optimisation:
    """The topmost objective: features (N, D), begun at the selected ones, that the head takes for their labels.

    Only the cross-entropy moves them: no block receives them, so neither layers nor inputs have statistics here.
    """
    term = Term("labels", settings.features, LabelMatch(classify, labels))
    variable = TensorVariable(features)
    return Optimisation(
        [term], backbone, lambda found: found, variable, settings.block, micro_batch=settings.micro_batch
    )


def spread_of_outputs(above: LayerStatistics | None, target: Tensor) -> Tensor:
    """By what outputs of a block and their targets (N, ...) are divided where they are compared normalised.

    The standard deviations of what the next block receives of real data, laid along its axis; for pooled features,
    which no block receives, those of the targets.
    """
    if above is None:
        return target.std(0, correction=0).clamp_min(torch.finfo(target.dtype).eps)
    assert above.view.axis is not None
    shape = [1] * target.dim()
    shape[above.view.axis] = -1
    return above.variance.sqrt().to(target).reshape(shape)
