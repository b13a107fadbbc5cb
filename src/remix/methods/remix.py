"""REMIX: PMI with a compact full-covariance model of the network's activations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from remix.inversion import Knowledge, LayerwiseSettings
from remix.learning.learner import Learner
from remix.methods.pmi import Pmi
from remix.methods.priors import check_batchnorm
from remix.methods.registry import method
from remix.networks import Backbone
from remix.statistics import (
    COVARIANCE_LIMIT,
    LayerMeter,
    batchnorm_points,
    rescale_to_batchnorm,
    resolution_points,
    resolution_shapes,
)

__all__ = ["Remix"]


@method("remix")
@dataclass(frozen=True)
class Remix(Pmi):
    """REMIX: PMI, and activations of pseudo-samples also correlate as those of real ones did, by a Laplace covariance.

    The prior is ``inversion.prior``: which covariance, in which form, how heavy. Other settings as in PMI.

    Args:
        view: what the prior looks at: "channels" of every BatchNorm input, as published, or the whole "map" at the end
            of every resolution.

    """

    view: Literal["channels", "map"] = "channels"
    inversion: LayerwiseSettings = LayerwiseSettings()  # noqa: RUF009 (frozen)

    def check(self, backbone: Backbone) -> None:
        """Whether covariances of this kind can be measured on what the prior looks at."""
        kind = self.inversion.prior.kind
        if self.view == "channels":
            if kind == "laplace-dct":
                raise ValueError("the prior 'laplace-dct' is of whole maps: set settings.view=map too")
            check_batchnorm(self.name, backbone)
            return
        numbers = max(math.prod(shape) for shape in resolution_shapes(backbone))
        if kind == "dense" and numbers > COVARIANCE_LIMIT:
            raise ValueError(
                f"the prior 'dense' of maps of {numbers:,} numbers would need a matrix of {numbers:,} x {numbers:,}; "
                f"{COVARIANCE_LIMIT:,} numbers are the most: set settings.view=channels, or prior.kind=laplace-dct"
            )

    def knowledge(self, learner: Learner) -> Knowledge:
        """As PMI, and covariances of the BatchNorm inputs, scaled to the running variances."""
        teacher = learner.teacher
        assert teacher is not None
        layers = rescale_to_batchnorm(learner.memory.layers, teacher.backbone)
        return Knowledge(teacher.backbone, layers, teacher.head)

    def layer_meters(self, learner: Learner) -> list[LayerMeter]:
        """As PMI, and covariances of the BatchNorm inputs or of whole maps."""
        prior = self.inversion.prior.kind
        kind = ("dense",) if prior == "dense" else ("laplace",)
        if self.view == "map":
            points = resolution_points(learner.backbone)
            covariances = LayerMeter(points, "map", kind, transform="dct" if prior == "laplace-dct" else None)
        else:
            covariances = LayerMeter(batchnorm_points(learner.backbone), kinds=kind)
        return [*super().layer_meters(learner), covariances]
