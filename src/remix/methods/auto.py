"""The exact head that suits the first classes; with `adapt` the network may be adapted to them first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.methods.exact import Exact, Scored, scored_images
from remix.methods.first_adaptation import FirstAdaptation, Trial, first_adapted
from remix.methods.lda import Lda
from remix.methods.ranpac import Ranpac
from remix.methods.registry import method
from remix.methods.step_features import StepFeatures, step_features
from remix.networks import FeatureMap, Pooling
from remix.statistics import ClassSums, Familiarity

__all__ = ["Auto"]

_FEWEST_CLASSES, _FEWEST_IMAGES = 4, 40  # that can tell whether adaptation is better


@method("auto")
@dataclass(frozen=True)
class Auto(Lda):
    """The better of lda and ranpac for the first classes, by images that are left out in turn; it stays with that.

    Settings as in `Lda`; with a covariance or a shrinkage it is that. `ncm` and `fecam` are not tried: on birds
    neither was better than lda by more than noise (docs/bench/learn.md).

    Args:
        adapt: whether a trained network is adapted to the first classes, once, if images of classes that it was not
            adapted to say that this is better (`remix.methods.first_adaptation`). It takes a minute instead of
            seconds, and a gain in accuracy was not certain on birds.

    """

    keeps: ClassVar[str] = "what lda or ranpac keeps"
    adapt: bool = False

    def heads(self) -> Sequence[Exact]:
        """A linear discriminant, and ridge regression on random features."""
        common = (self.first, self.blocks, self.rooted, self.minimum, self.removable)
        lda = Lda(*common, self.covariance, self.shrinkage)
        settled = self.covariance != "auto" or self.shrinkage is not None
        return (lda,) if settled else (lda, Ranpac(*common))

    def adapted(
        self, engine: Engine, data: ImageDataset, found: StepFeatures, by: Exact, map: FeatureMap, strength: float
    ) -> tuple[StepFeatures, Scored | None]:
        """Adapt a network that was trained elsewhere, if a trial says so."""
        start, classes = first_adapted(engine.backbone), found.labels.unique()
        few = len(classes) < _FEWEST_CLASSES or len(found.labels) < _FEWEST_IMAGES
        if not self.adapt or self.first.epochs or few or not start <= map.blocks[-1]:
            return found, None
        adaptation = FirstAdaptation(engine, data, found)
        sums = ClassSums.of(adaptation.frozen.rows, adaptation.frozen.labels, "none")
        labels = sums.rows(adaptation.frozen.labels)
        scored = scored_images(sums, labels, 1)
        familiar: list[Tensor] = []  # on the network as it is, and adapted to each half of the classes

        def scores(features: StepFeatures) -> Tensor:
            x = features.through(map)
            known = ClassSums.of(x, labels, "dense")
            familiar.append(Familiarity.of_sums(known).left_out(x[scored], labels[scored]))
            return by.tried(known.mean, [strength], x, labels, scored)[0]

        trial = adaptation.tried(scores, labels[scored])
        if trial is not None:
            engine.notes.append(_told(trial, len(engine.backbone.blocks()) - start))
        if trial is None or not trial.better or not adaptation.adapt(classes, "adapting the last blocks"):
            return found, None
        unknown = torch.where(labels[scored] % 2 == 0, familiar[2], familiar[1])
        honest = Scored(trial.scores, labels[scored], unknown)
        return step_features(engine, data, Pooling(found.blocks), found.sizes), honest


def _told(trial: Trial, blocks: int) -> str:
    """The choice and its reason in a sentence."""
    choice = f"adapted the last {blocks} blocks to the first classes" if trial.better else "left the network as it is"
    return (
        f"auto {choice}: on classes that the blocks were not adapted to, adaptation changes the cross-entropy from "
        f"{trial.before:.3f} to {trial.after:.3f} (standard error of the change {trial.error:.3f})"
    )
