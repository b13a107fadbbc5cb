"""What a stage of training is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from remix.learning.replay import Replayed
from remix.learning.training import Training
from remix.networks import Items

if TYPE_CHECKING:
    from remix.learning.engine import Engine

__all__ = ["Batch", "Losses", "Stage", "Work"]


class Batch(NamedTuple):
    """What the network receives of real images of the task, their labels (N,), and as many pseudo-samples, if any."""

    real: Items
    labels: Tensor
    replayed: Replayed | None


Losses = Callable[[Batch], Mapping[str, Tensor]]
"""From a batch to named terms, weighted, which are added."""


@dataclass(frozen=True)
class Work:
    """What a stage does, once it begins.

    Attributes:
        modules: those that learn; all others stay as they are, in eval mode.
        losses: the terms of the loss.
        before_epoch: called before every epoch.
        factors: modules, all within those that learn, whose rate is multiplied by a number.

    """

    modules: Sequence[nn.Module]
    losses: Losses
    before_epoch: Callable[[], None] | None = None
    factors: Sequence[tuple[nn.Module, float]] = ()


@dataclass(frozen=True)
class Stage:
    """A stage: known by name and length before anything is there to be trained.

    Attributes:
        name: shown while it runs, and written to the log.
        training: epochs, optimiser and rates.
        start: called when it begins, or goes on after an interruption.

    """

    name: str
    training: Training
    start: Callable[[Engine], Work]
