"""The contract of a method of class-incremental learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from remix.learning.items import Replay
from remix.learning.stage import Stage
from remix.networks.heads import head_class_of
from remix.support.settings import overlay
from remix.support.text import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

    from remix.data import ImageDataset
    from remix.learning.engine import Engine
    from remix.networks import Backbone, Head

__all__ = ["Method", "Step"]

Step = Literal["first", "later", "extend"]
"""Of a learner: its first classes, new classes, or a step in which some images are of classes it knows."""


class Method(ABC):
    """A method: what it dreams, how it trains, what it remembers. Settings are the fields of a frozen dataclass.

    In every task the engine calls, in this order::

        begin(engine)           the head has grown; ``engine.teacher`` is the model before, frozen (None in the first)
        dream(engine)           pseudo-samples of the old classes; not in the first task
        stages(step)            what is trained; each stage's ``start(engine)`` when its turn comes
        remember(engine, data)  what ``engine.memory`` is to keep; the images of the task are seen for the last time

    What there is, the engine's attributes say: ``student``, ``teacher``, ``memory``, ``replay``, ``old_classes``,
    ``new_classes``, ``generator`` (of everything random), ``pooled(items)`` (features of a batch), ``learning()`` (the
    modules of the network that may change), ``module(name, make)`` (further modules, saved with it). What a person
    should know goes to ``notes``, accuracies in percent that the method can tell by itself to ``estimates``.
    """

    name: ClassVar[str] = ""
    keeps: ClassVar[str] = "the network"
    """What is left of a task when it is over, in words."""

    keeps_images: ClassVar[bool] = False
    """Whether it is trained on the images of all tasks so far: an upper bound, not a method without old data."""

    exact: ClassVar[bool] = False
    """Whether the head is solved from sums, and the network stays as it is once it has been trained."""

    solves: ClassVar[bool] = False
    """Whether it solves the head when training is over, so that no epoch before can be judged by it."""

    by_steps: ClassVar[bool] = True
    """Whether it can go on from a model file, which keeps no more than network and memory."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Settings by the names that they had in earlier versions, whose runs are still read."""

    named: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings that have a name, by what they change of the defaults; such a method has a field ``setting``."""

    transformers: ClassVar[bool] = False
    """Whether it is for transformers alone: it learns adapters or prompts, or reads the names of classes."""

    carried: ClassVar[tuple[str, ...]] = ()
    """Names of modules that are kept from task to task."""

    @property
    def trains(self) -> bool:
        """Whether anything within the network ever learns; if not, teachers share all of it and no state holds it."""
        return True

    @classmethod
    def of(cls, setting: str) -> Self:
        """The method with the settings of this name.

        Raises:
            ValueError: for a name that it does not have.

        """
        if setting not in cls.named:
            hint, known = did_you_mean(setting, cls.named), ", ".join(cls.named) or "none"
            raise ValueError(f"method {cls.name!r} has no settings named {setting[:60]!r}{hint}; there are: {known}")
        return overlay(cls(), {**cls.named[setting], "setting": setting})

    def on_trained(self) -> Method:
        """The method for a network that begins with weights of training elsewhere: itself, for most."""
        return self

    def check(self, backbone: Backbone, start: int = 0) -> None:  # noqa: B027 (most can work with any)
        """Whether it can come to its end with this network, of which all from block ``start`` on learns.

        Raises:
            ValueError: if not; says which setting to change.

        """

    def head_kind(self, asked: str) -> str:
        """The kind of head that it learns with, where one of the kind ``asked`` is asked for or there already.

        Raises:
            ValueError: if it cannot learn with that.

        """
        if not head_class_of({"kind": asked}).all_tasks:
            raise ValueError(
                f"the method {self.name} compares the logits of all classes, and a head of the kind {asked!r} gives "
                "those of one task: begin with another head"
            )
        return asked

    def adapter_kind(self, asked: str | None) -> str | None:
        """What is plugged into a transformer that it learns with, where this is asked for: that, for most."""
        return asked

    def check_tasks(self, tasks: Sequence[Sequence[str]]) -> None:  # noqa: B027 (most can learn any)
        """Whether it can learn these tasks, given as the names of their classes.

        Raises:
            ValueError: if not; says what to change.

        """

    def begin(self, engine: Engine) -> None:  # noqa: B027 (nothing is an answer)
        """A task begins."""

    def dream(self, engine: Engine) -> Replay | None:
        """Pseudo-samples of the old classes, from the frozen teacher."""
        return None

    def dream_work(self, tasks: int) -> tuple[int, int]:
        """What `dream` costs after so many tasks: pseudo-samples made, and images sent through the network for them."""
        return 0, 0

    def restore_replay(self, engine: Engine) -> Replay:
        """The replay of an engine that was saved after it had dreamed; buffers of samples are restored without this."""
        raise NotImplementedError(f"method {self.name!r} does not say how its replay is restored")

    @abstractmethod
    def stages(self, step: Step) -> list[Stage]:
        """How the student is trained. It is asked before there is an engine, too, for the plan of a run.

        Raises:
            ValueError: if it cannot make such a step.

        """

    def remember(self, engine: Engine, data: ImageDataset) -> None:  # noqa: B027 (nothing is an answer)
        """Measure what ``engine.memory`` is to keep of this task."""

    def refitted(self, engine: Engine, features: Tensor, labels: Tensor) -> Head | None:
        """The head that it would have if it knew real features (N, D) of all classes; None for a linear classifier.

        For experiments alone: what is left to such a head was lost by the network, the rest by the statistics.
        """
        return None
