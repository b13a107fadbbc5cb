"""The exact head that suits the first classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from remix.methods.exact import Exact
from remix.methods.lda import Lda
from remix.methods.ranpac import Ranpac
from remix.methods.registry import method

__all__ = ["Auto"]


@method("auto")
@dataclass(frozen=True)
class Auto(Lda):
    """The better of lda and ranpac for the first classes, by images that are left out in turn; it stays with that.

    Settings as in `Lda`; with a covariance or a shrinkage it is that. `ncm` and `fecam` are not tried: on birds
    neither was better than lda by more than noise. Nor is the network adapted to the first classes: what that gained
    was not more than noise either (docs/bench/learn.md).
    """

    keeps: ClassVar[str] = "what lda or ranpac keeps"

    def heads(self) -> Sequence[Exact]:
        """A linear discriminant, and ridge regression on random features."""
        common = (self.first, self.blocks, self.rooted, self.minimum, self.removable, self.rotations)
        lda = Lda(*common, self.covariance, self.shrinkage)
        settled = self.covariance != "auto" or self.shrinkage is not None
        return (lda,) if settled else (lda, Ranpac(*common))
