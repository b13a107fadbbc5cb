"""One Laplace normal for a weighted mixture of several."""

from remix.laplace.merging.api import merge

__all__ = ["merge"]
