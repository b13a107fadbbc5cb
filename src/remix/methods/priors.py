"""What a method needs to hold its images to."""

from __future__ import annotations

from remix.inversion import PriorSettings
from remix.networks import Backbone
from remix.statistics import batchnorm_points

__all__ = ["check_batchnorm", "check_prior_kind"]

_WITHOUT_COVARIANCES = ("none", "diagonal")


def check_prior_kind(method: str, prior: PriorSettings) -> None:
    """Whether a method that measures no covariances can have a prior. Raises ValueError if not."""
    if prior.kind not in _WITHOUT_COVARIANCES:
        raise ValueError(
            f"the prior {prior.kind!r} needs covariances, which the method {method!r} does not measure: set prior.kind "
            f"to {' or '.join(_WITHOUT_COVARIANCES)}, or choose the method remix"
        )


def check_batchnorm(method: str, backbone: Backbone) -> None:
    """Whether a network has the layers whose statistics dreams are held to. Raises ValueError if not."""
    if not batchnorm_points(backbone):
        raise ValueError(
            f"{type(backbone).__name__} has no BatchNorm layers, whose statistics the method {method!r} holds its "
            "dreams to: its old classes could never be dreamed. The methods lwf and finetune need none; remix run also "
            "has settings.view=map of the method remix"
        )
