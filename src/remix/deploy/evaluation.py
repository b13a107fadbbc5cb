"""How well a model does on labelled images, class by class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from remix.data import DataError, ImageDataset, Skipped
from remix.data.errors import left_out
from remix.data.folder import scan
from remix.deploy.prediction import decoded, probabilities
from remix.deploy.sureness import Sureness
from remix.learning import Model
from remix.support.text import counted, printable, some

__all__ = ["Confusion", "Evaluation", "confusion_counts", "evaluate_data", "evaluate_folder", "label_names"]

_BATCH = 64
_SHOWN = 10  # classes, if they are more than twice as many


def confusion_counts(answers: Iterable[tuple[Tensor, Tensor | Sequence[int]]]) -> Counter[tuple[int, int]]:
    """By pairs (i, j): images of class i that are read as class j. This is where right answers are counted.

    Args:
        answers: batches of a score of every class (N, classes), such as logits or probabilities, and labels (N,).

    """
    counts: Counter[tuple[int, int]] = Counter()
    for scores, labels in answers:
        told = labels.tolist() if isinstance(labels, Tensor) else labels
        counts.update(zip(told, scores.argmax(1).tolist(), strict=True))
    return counts


@dataclass(frozen=True)
class Confusion:
    """So many images of a class were read as another."""

    name: str
    read_as: str
    images: int
    share: float
    """Of the images of the class, in percent."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What came of an evaluation. Everything is in percent.

    Attributes:
        classes: names of the model's classes.
        counts: by pairs (i, j), where there are any: images of class i that were read as class j.
        unknown: classes of the folder that the model does not know, with their numbers of files; not counted.
        skipped: files, and folders, that were left out, with reasons.

    """

    classes: tuple[str, ...]
    counts: Mapping[tuple[int, int], int]
    unknown: dict[str, int]
    skipped: tuple[Skipped, ...]
    calibration_error: float
    """By how much the probability of the answers differs from the share that is right: mean over 15 bins of images."""

    @property
    def images(self) -> int:
        """Number of images that were tested."""
        return sum(self.counts.values())

    @property
    def tested(self) -> tuple[int, ...]:
        """Labels of the classes that there were images of."""
        return tuple(sorted({i for i, _ in self.counts}))

    def of_class(self, label: int) -> tuple[int, int]:
        """Number of images of a class, and of those that were read right."""
        return self._totals[label], self.counts.get((label, label), 0)

    @cached_property
    def _totals(self) -> Counter[int]:
        totals: Counter[int] = Counter()
        for (i, _), images in self.counts.items():
            totals[i] += images
        return totals

    def accuracy(self, label: int) -> float:
        """Of one class."""
        images, right = self.of_class(label)
        return 100 * right / images

    @property
    def macro(self) -> float:
        """Mean over the accuracies of the classes that there were images of."""
        return sum(map(self.accuracy, self.tested)) / len(self.tested)

    @property
    def micro(self) -> float:
        """Share of all images that were read right."""
        return 100 * self.right / self.images

    @property
    def right(self) -> int:
        """Number of images that were read right."""
        return sum(images for (i, j), images in self.counts.items() if i == j)

    def confusions(self, most: int = 10) -> list[Confusion]:
        """The pairs of classes that are confused most often, most often first."""
        pairs = sorted((-images, i, j) for (i, j), images in self.counts.items() if i != j)
        return [
            Confusion(self.classes[i], self.classes[j], -less, 100 * -less / self.of_class(i)[0])
            for less, i, j in pairs[:most]
        ]

    def __repr__(self) -> str:
        """Accuracy over all, of each class or the least of many, and what is confused most."""
        if not self.images:
            return "Evaluation of no images"
        worst = sorted(self.tested, key=self.accuracy)[:_SHOWN] if len(self.tested) > 2 * _SHOWN else self.tested
        width = max(len(printable(self.classes[label])) for label in worst)
        images, classes = counted(self.images, "image"), counted(len(self.tested), "class")
        lines = [f"Evaluation: {self.micro:.1f} % of {images} right, mean over {classes} {self.macro:.1f} %"]
        lines += [f"the {_SHOWN} least:"] * (len(worst) < len(self.tested))
        for label in worst:
            name, number = printable(self.classes[label]), self.of_class(label)[0]
            lines.append(f"  {name:<{width}}  {self.accuracy(label):5.1f} %  of {number:,}")
        for pair in self.confusions(3):
            lines.append(
                f"  {counted(pair.images, 'image')} of {printable(pair.name)} read as {printable(pair.read_as)}"
            )
        lines += [f"  unknown to the model, not counted: {some(list(self.unknown))}"] * bool(self.unknown)
        return "\n".join(lines)


def evaluate_folder(model: Model, folder: str | Path, batch: int = 32) -> Evaluation:
    """Test a model on a folder with one sub-folder of images per class, named as the model's classes are.

    Where the folder has the parts train and test (or val), the test part is used.

    Raises:
        DataError: if there is no such folder, or no readable image of a class that the model knows.
        ValueError: if batch is below 1.

    """
    if batch < 1:
        raise ValueError(f"--batch must be at least 1, got {batch}")
    found = scan(Path(folder))
    files = dict(zip(found.classes, found.parts.get("test", found.parts["train"]), strict=True))
    known = {name: label for label, name in enumerate(model.classes)}
    unknown = {name: len(paths) for name, paths in files.items() if name not in known}
    if len(unknown) == len(files):
        raise DataError(
            f"the model knows none of the classes in {printable(folder)}: {some(list(files))}; "
            f"it knows {some(model.classes)}. The sub-folders must be called as the classes are"
        )
    label_of = {path: known[name] for name, paths in files.items() if name in known for path in paths}
    skipped: list[Skipped] = []

    def answers() -> Iterator[tuple[Tensor, list[int]]]:
        for usable, images, bad in decoded(label_of, model.preprocessing, batch):
            skipped.extend(bad)
            yield probabilities(model, images), [label_of[path] for path in usable]

    sureness = Sureness()
    counts = confusion_counts(sureness.watched(answers()))
    if not counts:
        raise DataError(
            f"no image in {printable(folder)} can be read: {'; '.join(left_out(skipped, names=3, reasons=3))}"
        )
    return Evaluation(model.classes, counts, unknown, (*skipped, *found.skipped), sureness.error())


def evaluate_data(model: Model, data: ImageDataset) -> Evaluation:
    """Test a model on labelled images, whose classes are called as the model's are.

    Raises:
        DataError: if the model knows none of them.

    """
    known = {name: label for label, name in enumerate(model.classes)}

    def answers() -> Iterator[tuple[Tensor, list[int]]]:
        for label, name in enumerate(data.classes):
            if name in known:
                for part in (data.labels == label).nonzero()[:, 0].split(_BATCH):
                    images, _ = data.batch(part)
                    yield probabilities(model, images), [known[name]] * len(images)

    sureness = Sureness()
    counts = confusion_counts(sureness.watched(answers()))
    unknown = {name: number for name, number in data.counts().items() if name not in known}
    if not counts:
        raise DataError(
            f"the model knows none of the classes of the data: {some(list(unknown))}; it knows {some(model.classes)}"
        )
    return Evaluation(model.classes, counts, unknown, (), sureness.error())


def label_names(classes: Sequence[str]) -> Callable[[int], str]:
    """What labels without names mean to a model: its classes may be called by them; else they are places among these.

    Raises:
        DataError: (the function) for a number that is no place.

    """
    if all(re.fullmatch(r"(class )?\d+", name) for name in classes):
        return lambda label: str(label) if str(label) in classes else f"class {label}"

    def by_place(label: int) -> str:
        if label >= len(classes):
            raise DataError(
                f"there is a label {label}, and the model has {len(classes)} classes, 0 to {len(classes) - 1}: say "
                "with classes=[...] what the labels are called"
            )
        return classes[label]

    return by_place
