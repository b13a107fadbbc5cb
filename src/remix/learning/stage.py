"""What a stage of training is: how it trains, and what it does once it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from remix.learning.items import Replayed
from remix.networks import Items

if TYPE_CHECKING:
    from remix.learning.engine import Engine

__all__ = ["Batch", "Losses", "Stage", "Training", "Work"]

_ADAM = "step", "exp_avg", "exp_avg_sq"
_STATE = {"sgd": ("momentum_buffer",), "adam": _ADAM, "adamw": _ADAM}
"""By optimiser, the names under which torch keeps its state of a parameter."""


@dataclass(frozen=True)
class Training:
    """Stochastic gradient descent, Adam or AdamW, with a rate that falls in steps or as half a cosine.

    Args:
        epochs: passes over the task's training images; 0 leaves the stage out.
        lr: learning rate at the start.
        milestones: epochs after which the rate is multiplied by ``factor``, with the schedule "steps".
        factor: see ``milestones``.
        momentum: of the gradient, for "sgd".
        weight_decay: L2 penalty on everything that is trained; decoupled from the gradient for "adamw".
        optimiser: "sgd", "adam" or "adamw".
        schedule: "steps", "cosine": half a cosine from ``lr`` to 0, or "quarter-cosine", as published for CLIP: 99 % of
            a quarter, batch by batch.
        warm_up: epochs in which the rate rises from 0, batch by batch; of a quarter cosine, batches.
        clip: the gradient's norm is cut to this; None for no limit.
        period: epochs in which the cosine comes to 0, after which it rises again; None for all of them.
        betas: how much of the averages of gradients and of their squares a step keeps, for "adam" and "adamw".

    Raises:
        ValueError: for negative numbers or such that are not finite, or milestones that do not rise.

    """

    epochs: int
    lr: float
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    schedule: Literal["steps", "cosine", "quarter-cosine"] = "steps"
    warm_up: float = 0.0
    clip: float | None = None
    period: float | None = None
    betas: tuple[float, ...] = (0.9, 0.999)

    def __post_init__(self) -> None:
        numbers = self.epochs, self.lr, self.momentum, self.weight_decay, self.warm_up
        if not all(math.isfinite(value) and value >= 0 for value in numbers) or not 0 < self.factor < math.inf:
            raise ValueError(
                "epochs, lr, momentum, weight_decay and warm_up must be finite and not negative, factor finite and "
                f"positive: {self}"
            )
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=0) < 0:
            raise ValueError(f"milestones must rise from 0 or more, got {self.milestones}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, or null for no limit, got {self.clip}")
        if self.period is not None and not 0 < self.period < math.inf:
            raise ValueError(f"period must be above 0, or null for all epochs, got {self.period}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers from 0 to below 1, got {self.betas}")

    def rate(self, epoch: int, part: float = 0.0, batches: int = 1) -> float:
        """The learning rate in an epoch, counted from 0, of which this part was trained on, of so many batches."""
        done = epoch + part
        if self.schedule == "quarter-cosine":
            made, last = int(done * batches), self.epochs * batches - 1
            if made < self.warm_up:
                return self.lr * made / self.warm_up
            share = (made - self.warm_up) / max(last - self.warm_up, 1)
            return self.lr * math.cos(0.495 * math.pi * share)
        if done < self.warm_up:
            return self.lr * done / self.warm_up
        if self.schedule == "cosine" and self.period is not None:
            return self.lr * 0.5 * (1 + math.cos(math.pi * (done - self.warm_up) / self.period))
        if self.schedule == "cosine":
            share = (done - self.warm_up) / max(self.epochs - self.warm_up, 1e-9)
            return self.lr * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        return self.lr * self.factor ** sum(epoch >= milestone for milestone in self.milestones)

    def start(self, parameters: Iterable[nn.Parameter], factors: Mapping[nn.Parameter, float]) -> torch.optim.Optimizer:
        """An optimiser; ``factors`` multiply the rate of some parameters."""
        everything = list(parameters)
        groups: list[dict[str, Any]] = [
            {"params": [p for p in everything if factors.get(p, 1.0) == factor], "factor": factor}
            for factor in dict.fromkeys(factors.get(parameter, 1.0) for parameter in everything)
        ]
        if self.optimiser == "sgd":
            return torch.optim.SGD(groups, self.lr, self.momentum, weight_decay=self.weight_decay)
        kind = torch.optim.Adam if self.optimiser == "adam" else torch.optim.AdamW
        return kind(groups, self.lr, (self.betas[0], self.betas[1]), weight_decay=self.weight_decay)

    def set_rate(self, optimiser: torch.optim.Optimizer, epoch: int, part: float, batches: int) -> None:
        """The rate from here on."""
        for group in optimiser.param_groups:
            group["lr"] = self.rate(epoch, part, batches) * group["factor"]

    def state(self, optimiser: torch.optim.Optimizer, names: Mapping[nn.Parameter, str]) -> dict[str, Tensor]:
        """What an optimiser remembers, by parameter; a parameter that was not reached yet has nothing."""
        return {
            f"{name}/{key}": value
            for parameter, name in names.items()
            for key in _STATE[self.optimiser]
            if isinstance(value := optimiser.state[parameter].get(key), Tensor)
        }

    def restore(
        self, optimiser: torch.optim.Optimizer, names: Mapping[nn.Parameter, str], state: Mapping[str, Tensor]
    ) -> None:
        """Go on with what `state` gave. Raises ValueError if that is of another stage."""
        known = {f"{name}/{key}": (parameter, key) for parameter, name in names.items() for key in self._keys()}
        for place, value in state.items():
            parameter, key = known.get(place, (None, ""))
            if parameter is None or (key != "step" and value.shape != parameter.shape):
                raise ValueError(f"the saved state {place[:60]!r} of the optimiser is not of this stage of training")
            optimiser.state[parameter][key] = value if key == "step" else value.to(parameter)

    def _keys(self) -> Sequence[str]:
        return _STATE[self.optimiser]


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
        held: modules, all within those that learn, that stay as they are, in eval mode.

    """

    modules: Sequence[nn.Module]
    losses: Losses
    before_epoch: Callable[[], None] | None = None
    factors: Sequence[tuple[nn.Module, float]] = ()
    held: Sequence[nn.Module] = ()

    def parameters(self) -> list[nn.Parameter]:
        """Those that learn, each once."""
        held = {parameter for module in self.held for parameter in module.parameters()}
        found = dict.fromkeys(p for module in self.modules for p in module.parameters())
        return [parameter for parameter in found if parameter not in held]


@dataclass(frozen=True)
class Stage:
    """A stage: known by name and length before anything is there to be trained.

    Attributes:
        name: shown while it runs, and written to the log.
        training: epochs, optimiser and rates.
        start: called when it begins, or goes on after an interruption.
        passes: how often an image goes through the network in an epoch, such as in several rotations.

    """

    name: str
    training: Training
    start: Callable[[Engine], Work]
    passes: int = 1
