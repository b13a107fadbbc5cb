"""The learner: task after task, without the data of the old ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from remix.data import Augment, ImageDataset, Normalisation, Task, batches
from remix.inversion import Checkpoint, Progress
from remix.learning.best_epoch import BestEpoch
from remix.learning.class_balance import LabelCounts
from remix.learning.frozen_trunk import FrozenTrunk
from remix.learning.method import Method
from remix.learning.monitor import Monitor
from remix.learning.replay import Replay
from remix.learning.stage import Stage
from remix.learning.team import Team, full_precision
from remix.learning.trainer import StageState, Trainer
from remix.networks import Backbone, Classifier, GrowingHead
from remix.networks.probe import evaluating
from remix.statistics import Memory

__all__ = ["InterruptedInversion", "Learner"]

Module = TypeVar("Module", bound=nn.Module)


class InterruptedInversion(KeyboardInterrupt):
    """Ctrl-C during an inversion; ``checkpoint`` is where it stands, ``saved`` whether somebody wrote that down."""

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.saved = False


class Learner:
    """A classifier that learns new classes with a method, and remembers only statistics of the old ones.

    Args:
        backbone: the network.
        method: how to learn.
        normalisation: from bytes to network input.
        augment: random crops and flips in training.
        batch_size: real images per step, and as many pseudo-samples.
        bias: whether the classifiers of the head have a bias.
        seed: of everything random.
        team: device, precision and processes.
        monitor: told of everything that happens.
        trunk: lower blocks that never change, where ``backbone`` is only the rest (`remix.networks.cut`).
        adapt_batchnorm: whether BatchNorm statistics follow the data in training. Small data sets of a network that
            was trained on a large one are better off without.
        best: keeps the best epoch of every stage; a learner that goes on after an interruption begins to compare anew.

    Attributes:
        student: the network that learns.
        teacher: the one before the present task, frozen; None in the first task and between tasks.
        memory: what is kept of past tasks.
        replay: the present task's pseudo-samples, or None.
        counts: how often each label was seen in the present task.
        present: the images of the present task, or None between tasks.

    """

    def __init__(
        self,
        backbone: Backbone,
        method: Method,
        normalisation: Normalisation,
        augment: Augment | None = None,
        *,
        batch_size: int = 128,
        bias: bool = False,
        seed: int = 0,
        team: Team | None = None,
        monitor: Monitor | None = None,
        trunk: FrozenTrunk | None = None,
        adapt_batchnorm: bool = True,
        best: BestEpoch | None = None,
    ) -> None:
        self.team = team or Team()
        self.student = Classifier(backbone, GrowingHead(backbone.feature_dim, bias=bias))
        self.team.prepare(self.student)
        self.method, self.normalisation, self.augment, self.batch_size = method, normalisation, augment, batch_size
        self.seed, self.monitor = seed, monitor or Monitor()
        self.trunk, self.adapt_batchnorm, self.best = trunk, adapt_batchnorm, best
        if trunk is not None:
            trunk.network.to(self.team.device)
        self.generator = torch.Generator().manual_seed(seed)
        self.memory = Memory()
        self.teacher: Classifier | None = None
        self.replay: Replay | None = None
        self.present: ImageDataset | None = None
        self.counts = LabelCounts(1)
        self.modules: dict[str, nn.Module] = {}
        self.saved_modules: dict[str, dict[str, Tensor]] = {}  # of a restored learner, until they are asked for
        self.done = 0  # phases of the present task
        self.stage_state = StageState()
        self.inversion: Checkpoint | None = None  # of an interrupted inversion, to go on with
        self.untrained = copy.deepcopy(self.student.backbone.state_dict()) if method.joint else {}

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
    def new_classes(self) -> int:
        """Classes of the present task."""
        return self.student.head.task_sizes[-1]

    @property
    def old_classes(self) -> int:
        """Classes before the present task."""
        return self.student.head.num_classes - self.new_classes

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

    def pooled(self, images: Tensor) -> Tensor:
        """The student's pooled features of images (N, C, H, W)."""
        return self.team.pooled(self.student.backbone, images)

    def pooled_together(self, *batches: Tensor) -> tuple[Tensor, ...]:
        """The same of several batches as one, which BatchNorm normalises alike."""
        return self.pooled(torch.cat(batches)).split([len(batch) for batch in batches])

    # --- learning ---

    def learn(self, task: Task, safe_point: Callable[[], None] = lambda: None) -> None:
        """Learn the classes of a task; a learner restored in the middle of this task goes on from there.

        Args:
            task: the new classes and their images. Nothing of it is kept afterwards but statistics.
            safe_point: called whenever the learner can be saved such that going on gives the same result.

        """
        self.present = task.train
        self._phase(0, "prepare", lambda: self._prepare(task), safe_point)
        self._phase(1, "dream", self._dream, safe_point)
        stages = [stage for stage in self.method.stages(self) if stage.sgd.epochs]
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
        new = len(task.labels)
        if task.labels.start != self.student.head.num_classes and not self.method.joint:
            raise ValueError(
                f"the next task must begin with label {self.student.head.num_classes}, this one has {task.labels}"
            )
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval() if self.tasks else None
        if self.method.joint:
            new = len(task.labels) - self.student.head.num_classes
        if new:  # further images of known classes bring no new ones
            self.student.head.grow(new, generator=self.generator)
        self.counts = LabelCounts(self.student.head.num_classes, self.team.device)

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
        )
        if not self.adapt_batchnorm:
            stage = replace(stage, adapting=())
        networks = [self.student, *([self.teacher] if self.teacher else []), *self.modules.values()]
        trainer.run(stage, networks, self.stage_state, safe_point)
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

    def images(self, data: ImageDataset, generator: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over a data set: shuffled and augmented with a generator, as it is without."""
        augment = self.augment if generator is not None else None
        return self._batches(data, self.batch_size, generator, augment)

    def _batches(
        self, data: ImageDataset, size: int, generator: torch.Generator | None, augment: Augment | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        make = batches if self.trunk is None else self.trunk.batches
        return make(data, size, generator, self.normalisation, augment, self.team.device)

    def evaluate(self, data: ImageDataset) -> tuple[int, int]:
        """How many images are classified rightly among all classes seen so far, and how many there are."""
        correct = 0
        with evaluating(self.student):
            for images, labels in self._batches(data, self._at_once(data), None, None):
                with self.team.precision():
                    features = full_precision(self.student.backbone.pooled(images))
                correct += int((self.student.head.logits(features).argmax(1) == labels).sum())
        return correct, len(data)

    @staticmethod
    def _at_once(data: ImageDataset) -> int:
        """Images to look at together: 500 of 32 x 32 pixels, fewer larger ones."""
        channels, height, width = data.input_shape
        return max(1, min(500, 500 * 3072 // (channels * height * width)))

    def evaluate_tasks(self, tests: Sequence[ImageDataset]) -> tuple[list[int], list[int]]:
        """The same for several data sets."""
        results = [self.evaluate(test) for test in tests]
        return [correct for correct, _ in results], [count for _, count in results]
