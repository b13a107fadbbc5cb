"""What a stage of training is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from remix.learning.replay import Replayed
from remix.learning.sgd import Sgd

__all__ = ["Batch", "Objective", "Stage"]


class Batch(NamedTuple):
    """Real images (N, C, H, W) of the task with labels (N,), and as many pseudo-samples where there are any."""

    images: Tensor
    labels: Tensor
    replayed: Replayed | None


Objective = Callable[[Batch], Mapping[str, Tensor]]
"""From a batch to named terms, weighted, which are added."""


@dataclass(frozen=True)
class Stage:
    """Who trains, how long, and on what.

    Attributes:
        name: shown while it runs, and written to the log.
        trained: the modules whose parameters change; all others stay as they are.
        sgd: epochs, rates and regularisation.
        objective: the terms of the loss.
        adapting: the modules in train mode, whose BatchNorm statistics move; those trained by default. All other
            modules are in eval mode.
        on_epoch: called before every epoch.
        factors: modules, all within those trained, whose rate is multiplied by a number.

    """

    name: str
    trained: Sequence[nn.Module]
    sgd: Sgd
    objective: Objective
    adapting: Sequence[nn.Module] | None = None
    on_epoch: Callable[[], None] | None = None
    factors: Sequence[tuple[nn.Module, float]] = ()
