"""Keeping the best epoch of a stage, and stopping when nothing gets better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

__all__ = ["BestEpoch"]


@dataclass
class BestEpoch:
    """Watches one stage at a time: how it does after every epoch on data it is not trained on.

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
