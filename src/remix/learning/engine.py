"""The engine: one task after another, without the data of the old ones.

task -> dream the old classes            inversion/ with statistics/
     -> train on new and replayed items  stages and losses
     -> remember                         statistics/ with laplace/
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from remix.data import Augment, ImageDataset, Normalisation, Task, batches
from remix.inversion import Checkpoint, Progress
from remix.learning.items import FrozenMaps, Replay
from remix.learning.losses import LabelCounts
from remix.learning.method import Method, Step
from remix.learning.stage import Stage
from remix.learning.team import Team, full_precision
from remix.learning.trainer import BestEpoch, Monitor, StageState, Trainer
from remix.networks import Backbone, Classifier, Items, frozen_copy
from remix.networks.probe import evaluating, where_not_finite
from remix.statistics import Memory
from remix.support.global_random import undisturbed

__all__ = ["Engine", "InterruptedInversion"]

Module = TypeVar("Module", bound=nn.Module)


class InterruptedInversion(KeyboardInterrupt):
    """Ctrl-C during an inversion; ``checkpoint`` is where it stands, ``saved`` whether somebody wrote that down."""

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.saved = False


class Engine:
    """Lets a classifier learn new classes with a method, and remembers only statistics of the old ones.

    Args:
        student: the network that learns; it is changed.
        method: how to learn.
        normalisation: from bytes to network input.
        augment: random crops and flips in training.
        batch_size: real images per step, and as many pseudo-samples.
        seed: of everything random.
        team: device, precision and processes.
        monitor: told of everything that happens.
        memory: what is kept of tasks that were learned before.
        start: the first block that learns; those before it never change. As many as there are blocks for none.
        versions: of every image that go through those blocks, the plain one included.
        adapt_batchnorm: whether BatchNorm statistics follow the data in training. Small data sets of a network that
            was trained on a large one are better off without.
        best: keeps the best epoch of every stage; an engine that goes on after an interruption begins to compare anew.

    Attributes:
        teacher: the network before the present task, frozen; None in the first task and between tasks.
        replay: the present task's pseudo-samples, or None.
        counts: how often each label was seen in the present task.
        present: the images of the present task, or None between tasks.
        notes: what a person should know about the present task, as its method told.
        estimates: accuracies in percent that its method told, by what they are of.

    Raises:
        ValueError: if the method cannot work with this network or its head.

    """

    def __init__(
        self,
        student: Classifier,
        method: Method,
        normalisation: Normalisation,
        augment: Augment | None = None,
        *,
        batch_size: int = 128,
        seed: int = 0,
        team: Team | None = None,
        monitor: Monitor | None = None,
        memory: Memory | None = None,
        start: int = 0,
        versions: int = 4,
        adapt_batchnorm: bool = True,
        best: BestEpoch | None = None,
    ) -> None:
        method.check(student.backbone, start)
        if method.head_kind(student.head.kind) != student.head.kind:
            raise ValueError(f"the method {method.name} learns with a head of the kind {method.head_kind('linear')!r}")
        self.team = team or Team()
        self.student, self.method, self.normalisation, self.augment = student, method, normalisation, augment
        self.batch_size, self.seed, self.monitor = batch_size, seed, monitor or Monitor()
        self.start, self.adapt_batchnorm, self.best = start, adapt_batchnorm, best
        self.team.prepare(student)
        self.memory = (memory or Memory()).to(self.team.device)
        self.generator = torch.Generator().manual_seed(seed)
        self.teacher: Classifier | None = None
        self.replay: Replay | None = None
        self.present: ImageDataset | None = None
        self.counts = LabelCounts(1)
        self.modules: dict[str, nn.Module] = {}
        self.saved_modules: dict[str, dict[str, Tensor]] = {}  # of a restored engine, until they are asked for
        self.done = 0  # phases of the present task
        self.stage_state = StageState()
        self.inversion: Checkpoint | None = None  # of an interrupted inversion, to go on with
        self.untrained = copy.deepcopy(self.backbone.state_dict()) if method.keeps_images else {}
        self.notes: list[str] = []
        self.estimates: dict[str, float] = {}
        within = 0 < start < len(student.backbone.blocks())  # all frozen: images go through all of it, once
        self._frozen = FrozenMaps(student.backbone, start, versions) if within else None

    # --- what there is ---

    @property
    def backbone(self) -> Backbone:
        """The student's."""
        return self.student.backbone

    @property
    def tasks(self) -> int:
        """Tasks learned."""
        return len(self.memory.tasks)

    @property
    def old_classes(self) -> int:
        """Classes that were known before the present task."""
        return 0 if self.teacher is None else self.teacher.head.num_classes

    @property
    def new_classes(self) -> int:
        """Classes of the present task that were not; 0 if all its images are of known ones."""
        return self.student.head.num_classes - self.old_classes

    @property
    def step(self) -> Step:
        """What kind of step the present task is."""
        if self.teacher is None:
            return "first"
        known = self.present is not None and bool((self.present.labels < self.old_classes).any())
        return "extend" if known and not self.method.keeps_images else "later"

    def learning(self) -> list[nn.Module]:
        """The modules of the backbone that may change."""
        return self.backbone.trainable(self.start) if self.method.trains else []

    def module(self, name: str, make: Callable[[], Module]) -> Module:
        """A module that belongs to the present task besides the student, saved with it; made when first asked for."""
        if name not in self.modules:
            before = self.generator.get_state()
            self.modules[name] = make().to(self.team.device)
            if name in self.saved_modules:  # made once already: neither its weights nor its random numbers are new
                try:
                    self.modules[name].load_state_dict(self.saved_modules.pop(name))
                except RuntimeError as error:
                    raise ValueError(f"the saved weights of {name!r} are not of this method") from error
                self.generator.set_state(before)
        return self.modules[name]  # type: ignore[return-value]

    def pooled(self, items: Items) -> Tensor:
        """The student's pooled features of a batch."""
        return self.team.pooled(self.backbone, *items)

    def pooled_together(self, *parts: Items) -> tuple[Tensor, ...]:
        """The same of several batches as one, which BatchNorm normalises alike."""
        latest = max(items.start for items in parts)
        same = [self.backbone.features(*items, latest) if items.start < latest else items.x for items in parts]
        return self.pooled(Items(torch.cat(same), latest)).split([len(x) for x in same])

    # --- learning ---

    def learn(self, task: Task, safe_point: Callable[[], None] = lambda: None) -> None:
        """Learn the classes of a task; an engine restored in the middle of this task goes on from there.

        Args:
            task: the new classes and their images. Nothing of it is kept afterwards but statistics.
            safe_point: called whenever the engine can be saved such that going on gives the same result.

        """
        with undisturbed(self.seed + self.tasks):
            self._learn(task, safe_point)

    def _learn(self, task: Task, safe_point: Callable[[], None]) -> None:
        self.present = task.train
        self.notes, self.estimates = [], {}
        self._phase(0, "prepare", lambda: self._prepare(task), safe_point)
        self._phase(1, "dream", self._dream, safe_point)
        stages = [stage for stage in self.method.stages(self.step) if stage.training.epochs]
        self.monitor.begin_task(self.tasks, task.classes, [stage.name for stage in stages])
        for number, stage in enumerate(stages, start=2):
            self._phase(number, stage.name, lambda stage=stage: self._train(stage, task, safe_point), safe_point)  # type: ignore[misc]
        self._phase(2 + len(stages), "remember", lambda: self._remember(task), safe_point)
        self.done = 0

    def _phase(self, number: int, name: str, work: Callable[[], None], safe_point: Callable[[], None]) -> None:
        if self.done > number:
            return
        self.monitor.begin_phase(number, name)
        work()
        self.done = number + 1
        safe_point()

    def _prepare(self, task: Task) -> None:
        known = self.student.head.num_classes
        if task.labels.start != known and not self.method.keeps_images:
            raise ValueError(f"the next task must begin with label {known}, this one has {task.labels}")
        self.teacher = self.frozen_student() if self.tasks else None
        self.backbone.begin_task(self.tasks)
        names = task.classes[known:] if self.method.keeps_images else task.classes
        if names:  # further images of known classes bring no new ones
            self.student.head.grow(names, generator=self.generator)
        self.counts = LabelCounts(self.student.head.num_classes, self.team.device)
        self.method.begin(self)

    def frozen_student(self) -> Classifier:
        """What the student is now."""
        return frozen_copy(self.student, [*self.learning(), self.student.head])

    def _dream(self) -> None:
        self.replay = self.method.dream(self) if self.teacher is not None else None
        self.inversion = None

    def _train(self, stage: Stage, task: Task, safe_point: Callable[[], None]) -> None:
        trainer = Trainer(
            self.team,
            self.generator,
            lambda generator: self.images(task.train, generator),
            math.ceil(len(task.train) / self.batch_size),
            self.replay,
            self.counts,
            self.monitor,
            self.best,
            self.adapt_batchnorm,
            lambda items: where_not_finite(self.backbone, *items),
        )
        work = stage.start(self)
        networks = {"student": self.student, **({"teacher": self.teacher} if self.teacher else {}), **self.modules}
        trainer.run(stage.name, stage.training, work, networks, self.stage_state, safe_point)
        self.stage_state = StageState()

    def _remember(self, task: Task) -> None:
        counts = task.train.counts()
        known = {record.name for record in self.memory.classes}
        fresh = [(name, counts[name]) for name in task.classes if name not in known]
        if fresh:
            self.memory.record_task(fresh)
        self.method.remember(self, task.train)
        self.teacher, self.replay, self.present = None, None, None
        self.modules = {name: module for name, module in self.modules.items() if name in self.method.carried}
        self.saved_modules = {}

    def inversion_step(self, progress: Progress) -> None:
        """For methods to give to an inversion as ``progress``."""
        self.monitor.inversion(progress)

    # --- use ---

    def images(self, data: ImageDataset, generator: torch.Generator | None = None) -> Iterator[tuple[Items, Tensor]]:
        """One pass over a data set: shuffled and augmented with a generator, as it is without."""
        augment = self.augment if generator is not None else None
        return self._batches(data, self.batch_size, generator, augment)

    def _batches(
        self, data: ImageDataset, size: int, generator: torch.Generator | None, augment: Augment | None
    ) -> Iterator[tuple[Items, Tensor]]:
        arguments = (data, size, generator, self.normalisation, augment, self.team.device)
        if self._frozen is not None:
            return self._frozen.batches(*arguments)
        return ((Items(images), labels) for images, labels in batches(*arguments))

    def logits(self, parts: Iterable[tuple[Items, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """The student's logits of batches in eval mode, and their labels."""
        return ((logits, labels) for _, logits, labels in self.answers(parts))

    def answers(self, parts: Iterable[tuple[Items, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The same with the features that the logits are of, before them."""
        with evaluating(self.student):
            for items, labels in parts:
                with self.team.precision():
                    features = full_precision(self.student.pooled(*items))
                yield features, self.student.head(features), labels

    def evaluate(self, data: ImageDataset) -> tuple[int, int]:
        """How many images are classified rightly among all classes seen so far, and how many there are."""
        channels, height, width = data.input_shape
        at_once = max(1, min(500, 500 * 3072 // (channels * height * width)))  # fewer of images above 32 x 32 pixels
        found = self.logits(self._batches(data, at_once, None, None))
        return sum(int((logits.argmax(1) == labels).sum()) for logits, labels in found), len(data)

    def evaluate_tasks(self, tests: Sequence[ImageDataset]) -> tuple[list[int], list[int]]:
        """The same for several data sets."""
        results = [self.evaluate(test) for test in tests]
        return [correct for correct, _ in results], [count for _, count in results]
