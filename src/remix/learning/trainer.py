"""The one runner of every stage, and who is told what while it works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from remix.inversion import Progress
from remix.learning.items import Replay
from remix.learning.losses import LabelCounts
from remix.learning.stage import Batch, Training, Work
from remix.learning.team import Team
from remix.networks import Items

__all__ = ["BestEpoch", "EpochData", "EpochReport", "Monitor", "StageState", "Trainer", "TrainingStoppedError"]


@dataclass(frozen=True)
class EpochReport:
    """One epoch of a stage: its number from 0, of how many, its rate, and the mean of each weighted term."""

    stage: str
    epoch: int
    epochs: int
    rate: float
    terms: Mapping[str, float]
    seconds: float


class Monitor:
    """Told of everything that happens; this one keeps silent. Methods may be overridden one by one."""

    def begin_task(self, index: int, classes: Sequence[str], phases: Sequence[str]) -> None:
        """A task begins (or goes on): its number from 0, its new classes, the names of what will be done."""

    def begin_phase(self, number: int, name: str) -> None:
        """A phase of the task begins."""

    def inversion(self, progress: Progress) -> None:
        """A step of inversion was made."""

    def batch(self, epoch: int, done: int, count: int) -> None:
        """``done`` of about ``count`` batches of an epoch, its number from 0, were trained on."""

    def epoch(self, report: EpochReport) -> None:
        """An epoch came to its end."""


EpochData = Callable[[torch.Generator], Iterator[tuple[Items, Tensor]]]
"""From a generator to one pass over the task's real images and labels."""


class TrainingStoppedError(RuntimeError):
    """The loss stopped being finite."""


@dataclass
class StageState:
    """Where a stage stands between two epochs: epochs made, and what the optimiser remembers, by parameter."""

    epoch: int = 0
    optimiser: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class BestEpoch:
    """Keeps the best epoch of a stage by how it does on data it is not trained on, and stops when nothing gets better.

    Attributes:
        judge: how bad the network is now; lower is better.
        patience: epochs without a better one after which a stage ends.

    """

    judge: Callable[[], float]
    patience: int = 5
    _best: float = field(default=float("inf"), init=False)
    _waited: int = field(default=0, init=False)
    _kept: list[dict[str, Tensor]] = field(default_factory=list, init=False)

    def begin(self) -> None:
        """A stage begins. What there is before it does not count as an epoch."""
        self._best, self._waited, self._kept = float("inf"), 0, []

    def after_epoch(self, modules: Sequence[nn.Module]) -> bool:
        """Look, keep the weights if they are the best so far; whether to stop."""
        value = self.judge()
        if value < self._best:
            self._best, self._waited = value, 0
            self._kept = [{k: v.detach().clone() for k, v in module.state_dict().items()} for module in modules]
        else:
            self._waited += 1
        return self._waited >= self.patience

    @torch.no_grad()
    def end(self, modules: Sequence[nn.Module]) -> None:
        """The stage is over: go back to its best epoch."""
        for module, state in zip(modules, self._kept, strict=False):
            module.load_state_dict(state)
        self._kept = []


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
        adapt_batchnorm: whether the BatchNorm statistics of what learns follow the data.
        locate: where numbers of these items stop being finite, in words; nothing if nowhere.

    """

    team: Team
    generator: torch.Generator
    data: EpochData
    batches: int
    replay: Replay | None
    counts: LabelCounts
    monitor: Monitor
    best: BestEpoch | None = None
    adapt_batchnorm: bool = True
    locate: Callable[[Items], str] = lambda items: ""

    def run(
        self,
        name: str,
        training: Training,
        work: Work,
        networks: Mapping[str, nn.Module],
        state: StageState,
        after_epoch: Callable[[], None],
    ) -> None:
        """Run the epochs of a stage that are left.

        Modes and ``requires_grad`` of every module are what they were before, also after an exception.

        Args:
            name: of the stage.
            training: epochs and rates.
            work: what to do.
            networks: everything that takes part, by name; what the work does not name is frozen and in eval mode.
            state: where to go on; it is kept up to date.
            after_epoch: called when an epoch is complete: a good moment to save.

        Raises:
            TrainingStoppedError: for a loss that is not finite, before a parameter was changed by it.

        """
        parameters = work.parameters()
        names = {p: f"{part}.{key}" for part, network in networks.items() for key, p in network.named_parameters()}
        learned = {p: names.get(p, f"parameter.{number}") for number, p in enumerate(parameters)}
        with _roles([*networks.values()], work, self.adapt_batchnorm):
            factors = {parameter: factor for module, factor in work.factors for parameter in module.parameters()}
            optimiser = training.start(parameters, factors)
            training.restore(optimiser, learned, state.optimiser)
            if self.best:
                self.best.begin()
            while state.epoch < training.epochs:
                terms, seconds = self._epoch(name, training, work, optimiser, parameters, state.epoch)
                state.optimiser = training.state(optimiser, learned)
                rate = training.rate(state.epoch, 0.5, self.batches)
                self.monitor.epoch(EpochReport(name, state.epoch, training.epochs, rate, terms, seconds))
                state.epoch += 1
                after_epoch()
                if self.best and self.best.after_epoch(work.modules):
                    break
            if self.best:
                self.best.end(work.modules)

    def _epoch(
        self,
        stage: str,
        training: Training,
        work: Work,
        optimiser: torch.optim.Optimizer,
        parameters: list[nn.Parameter],
        epoch: int,
    ) -> tuple[dict[str, float], float]:
        begin = time.perf_counter()
        if work.before_epoch:
            work.before_epoch()
        if self.replay is not None:
            self.replay.start_epoch(self.generator)
        totals: dict[str, float] = {}
        seen: dict[str, int] = {}  # images that a term was of: it need not be in every batch
        for number, (real, labels) in enumerate(self.data(self.generator)):
            training.set_rate(optimiser, epoch, (number + 0.5) / self.batches, self.batches)
            replayed = None if self.replay is None else self.replay.draw(len(labels), self.generator)
            self.counts.add(labels)
            if replayed is not None:
                self.counts.add(replayed.labels)
            with self.team.precision():
                terms = work.losses(Batch(real, labels, replayed))
            values = torch.stack([term.detach() for term in terms.values()]).tolist()
            found = dict(zip(terms, values, strict=True))
            _require_finite(found, stage, epoch, lambda items=real: self.locate(items))  # type: ignore[misc]
            optimiser.zero_grad(set_to_none=True)
            torch.stack([term for term in terms.values() if term.requires_grad]).sum().backward()
            self.team.average_gradients(parameters)
            if training.clip is not None:
                nn.utils.clip_grad_norm_(parameters, training.clip)
            optimiser.step()
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + value * len(labels)
                seen[name] = seen.get(name, 0) + len(labels)
            self.monitor.batch(epoch, number + 1, self.batches)
        means = {name: total / seen[name] for name, total in totals.items()}
        return means, time.perf_counter() - begin


def _require_finite(terms: dict[str, float], stage: str, epoch: int, locate: Callable[[], str]) -> None:
    bad = [name for name, value in terms.items() if value != value or value in (float("inf"), float("-inf"))]
    if bad:
        raise TrainingStoppedError(
            f"the loss is not finite: {bad[0]} became {terms[bad[0]]} in epoch {epoch + 1} of stage {stage!r}"
            f"{locate()}; try a smaller learning rate"
        )


@contextmanager
def _roles(networks: Sequence[nn.Module], work: Work, adapt_batchnorm: bool) -> Iterator[None]:
    modules = list(dict.fromkeys(m for network in (*networks, *work.modules) for m in network.modules()))
    modes = [module.training for module in modules]
    parameters = list(dict.fromkeys(p for module in modules for p in module.parameters(recurse=False)))
    learning = [parameter.requires_grad for parameter in parameters]
    try:
        for module in modules:
            module.training = False
        for module in work.modules if adapt_batchnorm else ():
            module.train()
        for module in work.held:
            module.eval()
        chosen = set(work.parameters())
        for parameter in parameters:
            parameter.requires_grad_(parameter in chosen)
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for parameter, before in zip(parameters, learning, strict=True):
            parameter.requires_grad_(before)
            parameter.grad = None
