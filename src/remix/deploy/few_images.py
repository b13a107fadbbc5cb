"""Learning from a few dozen images per class: as the method does, with targets drawn wider."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remix.inversion import Targets, feature_targets, random_labels
from remix.learning import Learner
from remix.methods.pmi import Pmi
from remix.methods.remix import Remix

__all__ = ["FewImagesDiagonal", "FewImagesLaplace"]


@dataclass(frozen=True)
class FewImagesDiagonal(Pmi):
    """PMI, or REMIX for a model that has no covariances.

    Args:
        spread: how far target features lie from the mean of their class, in its standard deviations. A class that was
            measured on a few dozen images is wider than it looks, and dreams in its middle leave too much room to the
            new classes.

    Other settings as in PMI; features are drawn, not selected: selectors need more images than there are.

    """

    selection: bool = False
    spread: float = 1.0

    def targets(self, learner: Learner) -> Targets:
        """Every class that the old model knows with the same chance, its features from its Gaussian, widened."""
        teacher, gaussians = learner.teacher, learner.memory.gaussians
        assert teacher is not None
        assert gaussians is not None
        labels = random_labels(range(teacher.head.num_classes), self.count(learner), learner.generator)
        wide = replace(gaussians, std=self.spread * gaussians.std)
        return feature_targets(labels, wide, None, learner.generator)


@dataclass(frozen=True)
class FewImagesLaplace(FewImagesDiagonal, Remix):
    """REMIX."""
