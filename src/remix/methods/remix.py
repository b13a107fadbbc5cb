"""REMIX: PMI with a compact full-covariance model of the network's activations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from remix.inversion import Knowledge, LayerwiseSettings, PriorSettings
from remix.learning.engine import Engine
from remix.methods import named_settings
from remix.methods.pmi import Pmi
from remix.methods.registry import method
from remix.networks import Backbone
from remix.statistics import (
    COVARIANCE_LIMIT,
    LayerMeter,
    meters_by_view,
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
        view: what the prior looks at: "channels" of every BatchNorm input (of what a network without BatchNorm
            watches instead), or the whole "map" at the end of every resolution.

    """

    keeps: ClassVar[str] = "what pmi keeps, and a Laplace covariance of the input of every BatchNorm layer"
    named: ClassVar[Mapping[str, Mapping[str, Any]]] = named_settings.REMIX
    view: Literal["channels", "map"] = "channels"
    inversion: LayerwiseSettings = LayerwiseSettings(prior=PriorSettings("laplace-code"))  # noqa: RUF009 (frozen)

    @property
    def _covariance(self) -> str | None:
        """The kind that is measured."""
        kind = self.inversion.prior.kind
        return None if kind in ("none", "diagonal") else kind.removesuffix("-dct")

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Whether covariances of this kind can be measured on what the prior looks at."""
        self.check_depth(backbone)
        kind, form = self.inversion.prior.kind, self.inversion.prior.form
        if form == "frobenius" and (kind == "none" or self.view == "map"):
            raise ValueError(
                "the prior's form 'frobenius' compares covariances of channels, and with settings.view=map or "
                "prior.kind=none there are none: use view=channels and a kind such as laplace, or another form"
            )
        if self.view == "channels":
            if kind == "laplace-dct":
                raise ValueError("the prior 'laplace-dct' is of whole maps: set settings.view=map too")
            return
        numbers = max(math.prod(shape) for shape in resolution_shapes(backbone))
        if kind == "dense" and numbers > COVARIANCE_LIMIT:
            raise ValueError(
                f"the prior 'dense' of maps of {numbers:,} numbers would need a matrix of {numbers:,} x {numbers:,}; "
                f"{COVARIANCE_LIMIT:,} numbers are the most: set settings.view=channels, or prior.kind=laplace-dct"
            )

    def knowledge(self, engine: Engine) -> Knowledge:
        """As PMI, and covariances, those of BatchNorm inputs scaled to the running variances."""
        teacher = engine.teacher
        assert teacher is not None
        layers = rescale_to_batchnorm(engine.memory.layers, teacher.backbone)
        prior = [key for key, layer in layers.items() if self._covariance in layer.covariances]
        return Knowledge(teacher.backbone, layers, teacher.head, prior or None, self.entered(engine))

    def layer_meters(self, backbone: Backbone, start: int) -> list[LayerMeter]:
        """As PMI, and covariances of what the network watches or of whole maps."""
        kinds = [] if self._covariance is None else [self._covariance]
        if not kinds:
            return super().layer_meters(backbone, start)
        if self.view == "channels":
            covariances = meters_by_view(backbone.watched(start), kinds)
        else:
            transform: Literal["dct"] | None = "dct" if self.inversion.prior.kind == "laplace-dct" else None
            covariances = [LayerMeter(resolution_points(backbone, start), "map", kinds, transform=transform)]
        return [*super().layer_meters(backbone, start), *covariances]
