"""What a method of class-incremental learning has to say for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from remix.learning.replay import Replay
from remix.learning.stage import Stage

if TYPE_CHECKING:
    from remix.data import ImageDataset
    from remix.learning.learner import Learner
    from remix.networks import Backbone

__all__ = ["Method"]


class Method(ABC):
    """A method: what it dreams, how it trains, what it remembers. Settings are the fields of a frozen dataclass.

    All three are called in every task with the learner, whose attributes say what there is: ``student``, ``teacher``
    (the model before this task, frozen; None in the first), ``memory``, ``replay``, ``old_classes``, ``new_classes``.
    `stages` is also called for the plan of a run and after an interruption: it only says what will be done.
    """

    name: ClassVar[str] = ""
    joint: ClassVar[bool] = False
    """Whether it is trained on the data of all tasks so far: an upper bound, not a method without old data."""

    carried: ClassVar[tuple[str, ...]] = ()
    """Names of modules that are kept from task to task."""

    def check(self, backbone: Backbone) -> None:  # noqa: B027 (most can work with any)
        """Whether it can come to its end with this network; asked before a run begins.

        Raises:
            ValueError: if not; says which setting to change.

        """

    def dream(self, learner: Learner) -> Replay | None:
        """Pseudo-samples of the old classes, from the frozen teacher; called in every task but the first."""
        return None

    def dream_work(self, learner: Learner) -> tuple[int, int]:
        """What `dream` would cost now: pseudo-samples made, and images sent through the network for them."""
        return 0, 0

    def restore_replay(self, learner: Learner) -> Replay:
        """The replay of a learner that was saved after it had dreamed; buffers of samples are restored without this."""
        raise NotImplementedError(f"method {self.name!r} does not say how its replay is restored")

    @abstractmethod
    def stages(self, learner: Learner) -> list[Stage]:
        """How the student is trained in this task. Its head has grown already.

        For a plan ``memory`` is empty and ``replay`` None; look at them when a stage's objective is called.
        """

    def remember(self, learner: Learner, data: ImageDataset) -> None:  # noqa: B027 (nothing is an answer)
        """Measure what ``learner.memory`` is to keep of this task; ``data`` are its images, seen for the last time."""
