"""Adaptation of a trained network to the first classes: its upper blocks, gently and once, if that is better.

RanPAC (McDonnell et al., 2023) does so in its first session. Afterwards the network is frozen for good, so that heads
are as exact as without. Whether it is better is estimated before: the blocks are adapted to one half of the classes and
images of the other half, each left out of the head in turn, are classified among all classes; then the other way round.
So every image is of a class, and every class new, to the network that it is judged with, as those of later steps are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.items import FrozenMaps
from remix.learning.losses import LabelCounts
from remix.learning.stage import Batch, Training, Work
from remix.learning.team import full_precision
from remix.learning.trainer import StageState, Trainer, TrainingStoppedError
from remix.methods.left_out import judge
from remix.methods.step_features import StepFeatures, spaced
from remix.networks import Backbone, Items, Pooling
from remix.networks.probe import block_shapes, evaluating

__all__ = ["FirstAdaptation", "Trial", "first_adapted"]

_STEPS, _LEAST, _MOST = 80, 4, 10  # of training, and epochs, of which there are fewer the more images
_LR, _OF_HEAD = 0.003, 10.0  # the head's rate is a multiple
_VERSIONS = 3  # of every image, plain and augmented
_MOST_IMAGES = 1500  # more are not seen in so few steps
_BLOCKS = 3  # at most, that adapt
_SCALE = 10.0  # of cosines
_PHASE = 2  # of a step in which nothing else is trained: what comes after dreaming


class Trial(NamedTuple):
    """What adaptation is worth for classes that it has not seen, by images left out in turn.

    Attributes:
        before: mean cross-entropy on the network as it is.
        after: on networks adapted to other classes.
        error: standard error of their difference.
        scores: (M, K) of the images on those networks.

    """

    before: float
    after: float
    error: float
    scores: Tensor

    @property
    def better(self) -> bool:
        """Whether adaptation is better by more than chance."""
        return self.before - self.after > self.error

    @classmethod
    def of(cls, before: Tensor, after: Tensor, labels: Tensor) -> Trial:
        """From scores (M, K) of images with labels (M,)."""
        losses = [_losses(before, labels), _losses(after, labels)]
        error = float((losses[0] - losses[1]).std() / len(labels) ** 0.5)
        return cls(float(losses[0].mean()), float(losses[1].mean()), error, after)


class FirstAdaptation:
    """The upper blocks of an engine's network, in its first step.

    Args:
        engine: its network is changed by `adapt` and is as before after `undo`.
        data: the images of the step.
        frozen: features of all of them by the network as it is.

    """

    def __init__(self, engine: Engine, data: ImageDataset, frozen: StepFeatures) -> None:
        self.engine, self.start = engine, first_adapted(engine.backbone)
        self.rows = spaced(len(data), _MOST_IMAGES)
        self.data = data if len(self.rows) == len(data) else data.select(self.rows)
        self.frozen = frozen.some(_MOST_IMAGES)
        self._maps = FrozenMaps(engine.backbone, self.start, _VERSIONS)
        self._modules = engine.backbone.trainable(self.start)
        self._before = [copy.deepcopy(module.state_dict()) for module in self._modules]

    def tried(self, scores: Callable[[StepFeatures], Tensor], labels: Tensor) -> Trial | None:
        """Adapt to each half of the classes in turn, judged by images of the other half; the network is as before.

        Args:
            scores: from features to the scores (M, K) of some images, each by a head of all images but itself.
            labels: (M,) places of their classes among those that there are images of.

        Returns:
            None if the loss of an adaptation stopped being finite.

        """
        before = scores(self.features())
        after = torch.empty_like(before)
        classes = self.frozen.labels.unique()
        for number in range(2):
            if not self.adapt(classes[number::2], f"trying to adapt, {number + 1} of 2"):
                return None
            others = labels % 2 != number
            after[others] = scores(self.features())[others]
            self.undo()
        return Trial.of(before, after, labels)

    def adapt(self, classes: Tensor, what: str) -> bool:
        """Train the upper blocks on the images of these classes, with a head of cosines of its own.

        Args:
            classes: their labels.
            what: to call it while it runs.

        Returns:
            whether it came to its end: if the loss stopped being finite, the network is as before.

        """
        engine, size = self.engine, self.engine.batch_size
        count = -(-len(self.data) // size)
        head = _Cosines(*self._centres(classes)).to(engine.team.device)
        trainer = Trainer(
            engine.team, engine.generator, lambda generator: self._of(classes, generator), count, None,
            LabelCounts(engine.student.head.num_classes, engine.team.device), engine.monitor, None, False,
        )  # fmt: skip
        place = torch.full((engine.student.head.num_classes,), -1)
        place[classes] = torch.arange(len(classes))

        def losses(batch: Batch) -> dict[str, Tensor]:
            return {"cosines": cross_entropy(head(engine.pooled(batch.real)), place.to(batch.labels)[batch.labels])}

        training = Training(max(_LEAST, min(_MOST, round(_STEPS / count))), _LR, schedule="cosine")
        work = Work([*self._modules, head], losses, factors=[(head, _OF_HEAD)])
        networks = {"student": engine.student, "adaptation": head}
        engine.monitor.begin_phase(_PHASE, what)
        try:
            trainer.run(what, training, work, networks, StageState(), lambda: None)
        except TrainingStoppedError:
            self.undo()
            return False
        finally:
            engine.monitor.begin_phase(_PHASE, "remember")
        return True

    def undo(self) -> None:
        """The network as it was."""
        for module, state in zip(self._modules, self._before, strict=True):
            module.load_state_dict(state)

    def features(self) -> StepFeatures:
        """Of the images by the network as it is now; of at most 1,500, evenly spaced."""
        upper = [block for block in self.frozen.blocks if block >= self.start]
        rows = [x for x, _ in self._pooled(Pooling(tuple(upper)))]
        sizes = dict(zip(self.frozen.blocks, self.frozen.sizes, strict=True))
        parts = dict(zip(self.frozen.blocks, self.frozen.rows.split(self.frozen.sizes, 1), strict=True))
        parts |= zip(upper, torch.cat(rows).split([sizes[block] for block in upper], 1), strict=True)
        return self.frozen._replace(rows=torch.cat(list(parts.values()), 1))

    def _centres(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Means (K, D) of the pooled features of classes, and of all their images, by the network as it is."""
        found = list(self._pooled())
        x, labels = torch.cat([x for x, _ in found]), torch.cat([one for _, one in found])
        means = torch.stack([x[labels == label].mean(0) for label in classes.tolist()])
        return means, x[torch.isin(labels, classes)].mean(0)

    def _pooled(self, at: Pooling | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        engine = self.engine
        with evaluating(engine.backbone):
            for items, labels in self._batches(None):
                with engine.team.precision():
                    yield full_precision(engine.backbone.pooled(*items, at)).cpu(), labels.cpu()

    def _of(self, classes: Tensor, generator: torch.Generator) -> Iterator[tuple[Items, Tensor]]:
        for items, labels in self._batches(generator):
            kept = torch.isin(labels, classes.to(labels))
            if bool(kept.any()):
                yield Items(items.x[kept], items.start), labels[kept]

    def _batches(self, generator: torch.Generator | None) -> Iterator[tuple[Items, Tensor]]:
        engine = self.engine
        augment = engine.augment if generator is not None else None
        return self._maps.batches(
            self.data, engine.batch_size, generator, engine.normalisation, augment, engine.team.device
        )


def first_adapted(backbone: Backbone) -> int:
    """The first block that adapts: of the last resolution, and among the last three; never the first of all."""
    shapes = [shape[1:] for shape in block_shapes(backbone)[1:]]
    stage = next(number for number, shape in enumerate(shapes) if shape == shapes[-1])
    return max(stage, len(shapes) - _BLOCKS, 1)


def _losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (M,) of images, their scores scaled as suits all of them."""
    return cross_entropy(judge(scores[None], labels).scale * scores, labels, reduction="none")


class _Cosines(nn.Module):
    """Cosines of features about a centre with a vector of each class, which begins as its mean."""

    def __init__(self, means: Tensor, centre: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(means - centre)
        self.register_buffer("centre", centre)
        self.centre: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return _SCALE * linear(normalize(x - self.centre), normalize(self.weight))
