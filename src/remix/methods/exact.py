"""Parts that exact heads share: sums of the features of a step, and a head solved from all sums so far."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.mistakes import most_mistaken
from remix.learning.stage import Stage, Training
from remix.methods.left_out import Judged, accuracy, judge
from remix.methods.plain import FIRST, first_task
from remix.methods.rotations import check_rotations
from remix.methods.step_features import StepFeatures, block_sets, block_sizes, copies, spaced, stage_ends, step_features
from remix.networks import Backbone, ExactHead, FeatureMap, Head, Pooling
from remix.statistics import Calibration, ClassRecord, ClassSums, Familiarity, Scatter, ScatterKind

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LEFT_OUT", "Exact", "Solved"]

LEFT_OUT = "images left out in turn"
"""What the accuracy of an exact head is measured on, without holding any image back."""

_MOST_TRIED = 5000  # images that choices are made by: more would not make another one
_MOST_BYTES = 1 << 31  # of scatters of classes
_MOST_SCORES, _FEWEST_SCORED = 2_000_000, 300  # numbers at a time, and images all the same


class Solved(NamedTuple):
    """A head in float64, its scores not scaled, and what gives the scores (N, K) of images without themselves."""

    head: ExactHead
    left_out: Callable[[Tensor, Tensor], Tensor]
    """Of features (N, D) that the sums are of and their labels (N,), of classes of more than one image."""


@dataclass(frozen=True)
class Exact(Method):
    """Base class: the network stays as it is, and the head is solved from sums, which no order of classes changes.

    Which blocks' features are used, whether as they are or as roots of unit length, and how strongly the solution is
    held back, is chosen with the first classes: by how probable the head finds each image's class without that image.

    Args:
        first: training of the first task of a network without weights; one that was trained before stays as it is.
        blocks: names of the blocks whose pooled outputs are used, instead of a choice.
        rooted: whether features are roots of unit length, instead of a choice.
        minimum: fewest images of a class that a step may have. The sums of a class of one image are its features.
        removable: keep the scatter of every class by itself, so that all that is kept of a class can be taken out.
        rotations: whether that first task is learned in four rotations, each of which makes classes of its own.

    """

    exact: ClassVar[bool] = True
    word: ClassVar[str] = "shrinkage"
    """What its strength is called, if it has one."""
    own: ClassVar[bool] = False
    """Whether every class has a scatter of its own anyway."""

    first: Training = FIRST
    blocks: tuple[str, ...] | None = None
    rooted: bool | None = None
    minimum: int = 1
    removable: bool = False
    rotations: bool = False

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise ValueError(f"minimum must be at least 1 image of a class, got {self.minimum}")

    # --- what a head is; labels are places among the classes, whose means are (K, D) ---

    @abstractmethod
    def kind(self, dim: int) -> ScatterKind:
        """What is kept of the scatter of so many features. Raises ValueError if they are too many."""

    @abstractmethod
    def strengths(self, x: Tensor) -> Sequence[float]:
        """Of shrinkage or penalty for features (N, D), to choose from; the middle one where nothing can be told."""

    def reckoned(self, within: Tensor, freedom: int) -> Sequence[float]:
        """The strength that deviations (N, D) of features from their class's mean call for, in a sequence, or none.

        It is taken where a network learned from these images: leaving out one that it knows tells little.
        """
        return ()

    @abstractmethod
    def tried(self, mean: Tensor, strengths: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
        """Scores (strengths, M, K) of those images (M,) that are asked for, each by a head of all images but itself."""

    @abstractmethod
    def solved(self, sums: ClassSums, map: FeatureMap, before: Head, seen: Collection[int]) -> Solved:
        """The head of all classes.

        Args:
            sums: of all of them.
            map: of the features that the sums are of.
            before: the head, with room for the new classes; no exact one in the first step.
            seen: labels of the classes that there were images of in this step.

        """

    def heads(self) -> Sequence[Exact]:
        """Of which the first classes choose one; itself, but for a method that does not say which."""
        return (self,)

    def most(self) -> int:
        """Features of blocks side by side; the last block alone may have more."""
        return 2048

    def forms(self) -> Sequence[bool]:
        """Whether features may be as they are, and roots of unit length: the latter where nothing learns from them."""
        if self.rooted is not None:
            return (self.rooted,)
        return (False,) if self.first.epochs else (False, True)

    def completed(self, map: FeatureMap, seed: int) -> FeatureMap:
        """A map with what the method adds to it."""
        return map

    def settled(self, strength: float, kind: ScatterKind) -> float:
        """The strength of a head from such a scatter, where another one was chosen by matrices."""
        return strength

    # --- as a method ---

    @property
    def trains(self) -> bool:
        """With the first classes of a network without weights."""
        return bool(self.first.epochs)

    def head_kind(self, asked: str) -> str:
        """Its own, in the place of any other: the names of classes tell it nothing."""
        return super().head_kind("linear" if asked == "text" else asked)

    def adapter_kind(self, asked: str | None) -> str | None:
        """None: the network stays as it is."""
        return None

    def on_trained(self) -> Self:
        """Without training."""
        return replace(self, first=Training(0, 0.0))

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """All of the network stays as it is, there are such blocks, and the last has not too many features."""
        if self.rotations and self.first.epochs:
            check_rotations(self.name, backbone, start)
        names = [block.name for block in backbone.blocks()]
        if 0 < start < len(names):
            raise ValueError(f"the method {self.name} freezes the whole network by itself: leave freeze (--freeze) out")
        for name in self.blocks or ():
            if name not in names:
                raise ValueError(f"there is no block {name!r} to take features of; there are: {', '.join(names)}")
        if self.blocks is None:
            self.kind(backbone.feature_dim)

    def stages(self, step: Step) -> list[Stage]:
        """None, but for the first classes of a network without weights."""
        return first_task(self.first, self.rotations) if step == "first" else []

    def begin(self, engine: Engine) -> None:
        """Refuse sums that cannot be gone on with, and classes of too few images."""
        assert engine.present is not None
        if engine.teacher is not None:
            _check_sums(self, engine)
        for name, count in engine.present.counts().items():  # of known ones too: steps are kept apart
            if 0 < count < self.minimum:
                raise ValueError(
                    f"{name} has {count} image{'s' * (count > 1)} to learn from, and the least is {self.minimum} "
                    "(minimum): give it more, or leave it out"
                )

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Add the images of this step to the sums, and solve the head from all of them."""
        known, head = engine.memory.get(ClassSums.name), engine.student.head
        if known is None:
            found, by, map, strength = self._begun(engine, data)
            x = found.through(map)
            kind, own = by.kind(map.dim), by.own or by.removable
            _check_size(kind, own, map.dim, len(engine.memory.classes))
            sums = ClassSums.of(x, found.labels, kind, own)
            sums = replace(sums, method=by.name, strength=by.settled(strength, sums.scatter.kind))
            engine.notes.append(by._told(engine.backbone, map, sums))
        else:
            assert isinstance(head, ExactHead)
            by = next(one for one in self.heads() if one.name == known.method)
            map, found = head.map, step_features(engine, data, head.map.at, head.map.sizes)
            x, kind = found.through(map), known.scatter.kind
            _check_size(kind, known.own, map.dim, len(engine.memory.classes))
            sums = known.extended(ClassSums.of(x, found.labels, "dense" if kind == "laplace" else kind, known.own))
        if again := copies(found.rows):
            engine.notes.append(
                f"{again} of {len(found.labels)} images are to the network what another one is: if they are copies, "
                f"the accuracy of {LEFT_OUT} is too high"
            )
        solved = by.solved(sums, map, head, set(found.labels.tolist()))
        scale = self._test(engine, sums, solved, x, found.labels)
        # Later only new images could choose a scale: on birds that calibrates old classes worse than the first one.
        sums = replace(sums, scale=scale) if known is None else sums
        solved.head.scale.fill_(sums.scale)
        if sums.own and not by.own and sums.scatter.kind != "none":
            engine.notes.append(_told_bytes(sums))
        engine.memory.keep(sums)
        engine.memory.classes = tuple(
            ClassRecord(record.name, sums.counts[label]) for label, record in enumerate(engine.memory.classes)
        )
        engine.student.head = solved.head.float().to(engine.team.device)

    def _sets(self, backbone: Backbone, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The blocks to choose from."""
        if self.blocks is None:
            return block_sets(sizes, self.most())
        names = [block.name for block in backbone.blocks()]
        return [tuple(sorted({names.index(name) for name in self.blocks}))]

    def _fixed(self, backbone: Backbone) -> FeatureMap | None:
        """Of a network that learns from the first images: these cannot choose blocks, as the last knows them best."""
        if not self.first.epochs or self.blocks is not None:
            return None
        maps = (stage_ends(backbone, detail=detail) for detail in (True, False))
        return next((map for map in maps if map.dim <= self.most()), None)

    def _begun(self, engine: Engine, data: ImageDataset) -> tuple[StepFeatures, Exact, FeatureMap, float]:
        """Features of the first classes, and the head, map and strength that are chosen by them."""
        sizes, heads = block_sizes(engine.backbone), self.heads()
        sets = [one._sets(engine.backbone, sizes) for one in heads]
        blocks = tuple(sorted({block for tried in sets for one in tried for block in one}))
        at, widths, fixed = Pooling(blocks), [sizes[block] for block in blocks], self._fixed(engine.backbone)
        if fixed is not None:
            at, widths, sets = fixed.at, list(fixed.sizes), [[fixed.blocks] for _ in heads]
        found = step_features(engine, data, at, widths)
        some = found.some(_MOST_TRIED)
        chosen = [one._choose(some, tried, engine.seed) for one, tried in zip(heads, sets, strict=True)]
        best = min(range(len(heads)), key=lambda place: chosen[place].loss)
        if len(heads) > 1:
            losses = ", ".join(f"{one.name} {choice.loss:.3f}" for one, choice in zip(heads, chosen, strict=True))
            why = f"by the cross-entropy of images left out in turn: {losses}"
            counts = found.labels.unique(return_counts=True)[1]
            if len(counts) < 2 or int(counts.max()) < 2:
                why = "unseen: to compare heads takes two classes, and two images of one of them"
            engine.notes.append(f"{self.name} chose {heads[best].name}, {why}")
        return found, heads[best], chosen[best].map, chosen[best].strength

    def _choose(self, found: StepFeatures, sets: Sequence[tuple[int, ...]], seed: int) -> _Choice:
        """Map and strength under which images are most probably of their classes, each without itself."""
        sizes, chosen = dict(zip(found.blocks, found.sizes, strict=True)), None
        for rooted in self.forms():
            for blocks in sets:
                bare = FeatureMap(blocks, [sizes[block] for block in blocks], rooted, detail=found.detail)
                map = self.completed(bare, seed)
                x = found.through(map)
                sums = ClassSums.of(x, found.labels, "none")
                strengths, labels = self.strengths(x), sums.rows(found.labels)
                if self.first.epochs:
                    strengths = self.reckoned(x - sums.mean[labels], sums.freedom) or strengths
                judged = Judged(len(strengths) // 2, 0.0, 1.0)
                scored = _scored(sums, labels, len(strengths))
                if len(scored):
                    judged = judge(self.tried(sums.mean, strengths, x, labels, scored), labels[scored])
                if chosen is None or judged.loss < chosen.loss - 1e-9:
                    chosen = _Choice(judged.loss, map, strengths[judged.place])
        assert chosen is not None, "there is always the last block"
        return chosen

    def _test(self, engine: Engine, sums: ClassSums, solved: Solved, x: Tensor, labels: Tensor) -> float:
        """Tell how images fare with heads without them, and keep how familiar they look; the scale of their scores."""
        labels = sums.rows(labels)
        scored = _scored(sums, labels, 1)
        if not len(scored):
            return 1.0
        x, labels = x[scored], labels[scored]
        scores = solved.left_out(x, labels)
        if not any(stage.training.epochs for stage in self.stages(engine.step)):  # else what tests them knows them
            if sums.scatter.kind != "laplace":
                engine.estimates[LEFT_OUT] = accuracy(scores, labels)
                engine.notes += most_mistaken(scores, labels, [record.name for record in engine.memory.classes])
            found = Calibration.of(Familiarity.of_sums(sums).left_out(x, labels), len(labels))
            known = engine.memory.get(Calibration.name)
            engine.memory.keep(found if known is None else known.merge(found))
        return judge(scores[None], labels).scale

    def _told(self, backbone: Backbone, map: FeatureMap, sums: ClassSums) -> str:
        names = [backbone.blocks()[block].name for block in map.blocks]
        rooted = " as roots of unit length" if map.rooted else ""
        held = f", {self.word} {sums.strength:.3g}" if self.word else ""
        detail = " in detail" if map.detail else ""
        return f"{self.name} uses features of {' + '.join(names)}{detail}{rooted}{held}"


class _Choice(NamedTuple):
    """What a head is to be solved on, and how good it is then: the cross-entropy of images left out in turn."""

    loss: float
    map: FeatureMap
    strength: float


def _scored(sums: ClassSums, labels: Tensor, heads: int) -> Tensor:
    """Places of the images that heads are judged by: of classes of several images, and fewer of very many classes."""
    usable = (sums.weights()[labels] > 1).nonzero()[:, 0]
    if len(sums.labels) < 2:
        return usable[:0]
    most = min(_MOST_TRIED, max(_FEWEST_SCORED, _MOST_SCORES // (heads * len(sums.labels))))
    return usable[spaced(len(usable), most)]


def _check_sums(method: Exact, engine: Engine) -> None:
    sums, head = engine.memory.get(ClassSums.name), engine.student.head
    if sums is None or not isinstance(head, ExactHead):
        raise ValueError(
            f"the model keeps no sums of its classes, so the method {method.name} cannot go on with it: go on with the "
            f"method that it has, or learn all classes anew with {method.name}"
        )
    if method.removable and not sums.own and sums.scatter.kind != "none":
        raise ValueError(
            "the model keeps one scatter of all its classes, so none of them can be taken out of it: removable "
            "(--removable) is chosen in the first step"
        )
    if sums.method not in [one.name for one in method.heads()]:
        raise ValueError(f"the model has the sums of the method {sums.method}: go on with that, or begin anew")
    if sums.labels != tuple(range(engine.old_classes)) or sums.dim != head.map.dim:
        raise ValueError("the sums of the model are not those of its classes and features: it cannot be taught")


def _check_size(kind: ScatterKind, own: bool, dim: int, classes: int) -> None:
    size = Scatter.numbers(kind, dim) * 8 * classes if own else 0
    if size > _MOST_BYTES:
        raise ValueError(
            f"a scatter of each of {classes:,} classes would take {size / 1e9:.1f} GB: choose a smaller one (--method "
            "lda --covariance diagonal), or one for all classes (lda or ranpac without --removable)"
        )


def _told_bytes(sums: ClassSums) -> str:
    size = sum(part.scatter.bytes(sums.scatter.kind) for part in sums.parts)
    one = 8 * Scatter.numbers(sums.scatter.kind, sums.dim) * len(sums.parts)
    return f"removable: the scatter of each class takes {size:,} bytes; one of all would take {one:,}"
