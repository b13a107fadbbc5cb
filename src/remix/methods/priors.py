"""Which priors a method can have."""

from __future__ import annotations

from remix.inversion import PriorSettings

__all__ = ["check_prior_kind"]

_WITHOUT_COVARIANCES = ("none", "diagonal")


def check_prior_kind(method: str, prior: PriorSettings) -> None:
    """Whether a method that measures no covariances can have a prior. Raises ValueError if not."""
    if prior.kind not in _WITHOUT_COVARIANCES:
        raise ValueError(
            f"the prior {prior.kind!r} needs covariances, which the method {method!r} does not measure: set prior.kind "
            f"to {' or '.join(_WITHOUT_COVARIANCES)}, or choose the method remix"
        )
