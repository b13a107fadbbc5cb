"""The one runner of every stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from remix.learning.best_epoch import BestEpoch
from remix.learning.class_balance import LabelCounts
from remix.learning.monitor import EpochReport, Monitor
from remix.learning.replay import Replay
from remix.learning.stage import Batch, Stage
from remix.learning.team import Team

__all__ = ["EpochData", "StageState", "Trainer", "TrainingStoppedError"]

EpochData = Callable[[torch.Generator], Iterator[tuple[Tensor, Tensor]]]
"""From a generator to one pass over the task's real images and labels."""


class TrainingStoppedError(RuntimeError):
    """The loss stopped being finite."""


@dataclass
class StageState:
    """Where a stage stands between two epochs: epochs made, and the optimiser's momentum by parameter."""

    epoch: int = 0
    momentum: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Trainer:
    """Runs stages.

    Attributes:
        team: device, precision and processes.
        generator: source of everything random.
        data: the task's real images.
        batches: how many batches a pass over them has.
        replay: pseudo-samples, or None in a first task.
        counts: every label seen is counted here.
        monitor: told of batches and epochs.
        best: keeps the best epoch of every stage, where there is something to judge by.

    """

    team: Team
    generator: torch.Generator
    data: EpochData
    batches: int
    replay: Replay | None
    counts: LabelCounts
    monitor: Monitor
    best: BestEpoch | None = None

    def run(
        self, stage: Stage, networks: Sequence[nn.Module], state: StageState, after_epoch: Callable[[], None]
    ) -> None:
        """Run the epochs of a stage that are left.

        Modes and ``requires_grad`` of every module are what they were before, also after an exception.

        Args:
            stage: what to do.
            networks: everything that takes part; what the stage does not name is frozen and in eval mode meanwhile.
            state: where to go on; it is kept up to date.
            after_epoch: called when an epoch is complete: a good moment to save.

        Raises:
            TrainingStoppedError: for a loss that is not finite, before a parameter was changed by it.

        """
        parameters = list(dict.fromkeys(p for module in stage.trained for p in module.parameters()))
        if not stage.sgd.epochs:
            return
        with _roles(networks, stage):
            optimiser = self._optimiser(stage, parameters, state)
            if self.best:
                self.best.begin()
            while state.epoch < stage.sgd.epochs:
                for group in optimiser.param_groups:
                    group["lr"] = stage.sgd.rate(state.epoch) * group["factor"]
                terms, seconds = self._epoch(stage, optimiser, parameters, state.epoch)
                state.momentum = [_momentum(optimiser, parameter) for parameter in parameters]
                self.monitor.epoch(
                    EpochReport(stage.name, state.epoch, stage.sgd.epochs, stage.sgd.rate(state.epoch), terms, seconds)
                )
                state.epoch += 1
                after_epoch()
                if self.best and self.best.after_epoch(stage.trained):
                    break
            if self.best:
                self.best.end(stage.trained)

    def _optimiser(self, stage: Stage, parameters: list[nn.Parameter], state: StageState) -> torch.optim.SGD:
        sgd = stage.sgd
        factors = {parameter: factor for module, factor in stage.factors for parameter in module.parameters()}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if factors.get(p, 1.0) == factor], "factor": factor}
            for factor in dict.fromkeys(factors.get(parameter, 1.0) for parameter in parameters)
        ]
        optimiser = torch.optim.SGD(groups, sgd.lr, sgd.momentum, weight_decay=sgd.weight_decay)
        for parameter, momentum in zip(parameters, state.momentum, strict=False):
            if momentum.shape != parameter.shape:
                raise ValueError(f"the saved momentum {tuple(momentum.shape)} is not of this stage of training")
            optimiser.state[parameter]["momentum_buffer"] = momentum.to(parameter)
        return optimiser

    def _epoch(
        self, stage: Stage, optimiser: torch.optim.SGD, parameters: list[nn.Parameter], epoch: int
    ) -> tuple[dict[str, float], float]:
        begin = time.perf_counter()
        if stage.on_epoch:
            stage.on_epoch()
        if self.replay is not None:
            self.replay.start_epoch(self.generator)
        totals: dict[str, float] = {}
        images_seen = 0
        for number, (images, labels) in enumerate(self.data(self.generator)):
            replayed = None if self.replay is None else self.replay.draw(len(labels), self.generator)
            self.counts.add(labels)
            if replayed is not None:
                self.counts.add(replayed.labels)
            with self.team.precision():
                terms = stage.objective(Batch(images, labels, replayed))
            values = torch.stack([term.detach() for term in terms.values()]).tolist()
            found = dict(zip(terms, values, strict=True))
            _require_finite(found, stage.name, epoch)
            optimiser.zero_grad(set_to_none=True)
            torch.stack([term for term in terms.values() if term.requires_grad]).sum().backward()
            self.team.average_gradients(parameters)
            optimiser.step()
            images_seen += len(labels)
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + value * len(labels)
            self.monitor.batch(epoch, number + 1, self.batches)
        means = {name: total / max(images_seen, 1) for name, total in totals.items()}
        return means, time.perf_counter() - begin


def _momentum(optimiser: torch.optim.SGD, parameter: nn.Parameter) -> Tensor:
    """Zero, which is where it starts, for a parameter that was not reached yet."""
    found = optimiser.state[parameter].get("momentum_buffer")
    return found if isinstance(found, Tensor) else torch.zeros_like(parameter)


def _require_finite(terms: dict[str, float], stage: str, epoch: int) -> None:
    bad = [name for name, value in terms.items() if value != value or value in (float("inf"), float("-inf"))]
    if bad:
        raise TrainingStoppedError(
            f"the loss is not finite: {bad[0]} became {terms[bad[0]]} in epoch {epoch + 1} of stage {stage!r}; "
            "try a smaller learning rate"
        )


@contextmanager
def _roles(networks: Sequence[nn.Module], stage: Stage) -> Iterator[None]:
    modules = list(dict.fromkeys(m for network in (*networks, *stage.trained) for m in network.modules()))
    modes = [module.training for module in modules]
    parameters = list(dict.fromkeys(p for module in modules for p in module.parameters(recurse=False)))
    learning = [parameter.requires_grad for parameter in parameters]
    try:
        for module in modules:
            module.training = False
        for module in stage.trained if stage.adapting is None else stage.adapting:
            module.train()
        chosen = {p for module in stage.trained for p in module.parameters()}
        for parameter in parameters:
            parameter.requires_grad_(parameter in chosen)
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for parameter, before in zip(parameters, learning, strict=True):
            parameter.requires_grad_(before)
            parameter.grad = None
