"""Value and gradient of a weighted sum of terms over a batch, with bounded memory.

Every term is a function f_k of batch averages M_k = mean_i m_k(x_i). If the batch is run in one piece, autograd does
all. If it is run in parts, a first pass without gradients gathers the averages of the whole batch; then the gradients
g_k = d(sum of terms) / dM_k are small and known, and a second pass adds up the gradients of sum_k <g_k, m_k(x_i)> part
by part. The result is the gradient of the same objective: how the batch is divided changes only rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from remix.inversion.terms import Average, BatchAverage, Seen, Term
from remix.inversion.variables import Render, Variable
from remix.inversion.watch import Watch
from remix.networks.hooks import Point
from remix.statistics import NonFiniteActivationError

__all__ = ["TotalLoss"]

Weigh = Callable[[dict[str, float]], Mapping[str, float]]
"""From the values of terms to their weights."""


class TotalLoss:
    """A weighted sum of terms.

    Args:
        terms: with different names; those of weight 0 are left out.
        network: that the terms look into.
        forward: the part of it that runs.
        variable: the unknowns.
        micro_batch: most images at once; None for all of them.

    Raises:
        ValueError: for no terms, names given twice, or a micro-batch that the variable does not allow.

    """

    def __init__(
        self,
        terms: Sequence[Term],
        network: nn.Module,
        forward: Callable[[Tensor], Tensor],
        variable: Variable,
        micro_batch: int | None = None,
    ) -> None:
        self.terms = [term for term in terms if term.weight > 0]
        names = [term.name for term in self.terms]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"an objective needs terms with different names and positive weights, got {names}")
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch must be at least 1, got {micro_batch}")
        if micro_batch is not None and micro_batch < variable.count and not variable.divisible:
            raise ValueError(f"this variable needs its batch of {variable.count} in one piece: leave micro_batch out")
        size = min(micro_batch or variable.count, variable.count)
        self.parts = [slice(i, min(i + size, variable.count)) for i in range(0, variable.count, size)]
        self._averages = _most_detailed(average for term in self.terms for average in term.loss.averages)
        self._watch = Watch(network, forward, self._averages.values())
        self._variable = variable

    def evaluate(
        self, generator: torch.Generator, weigh: Weigh, step: int = 0
    ) -> tuple[dict[str, float], list[Tensor]]:
        """The value of every term, and the gradient of their sum with the weights that ``weigh`` gives these values.

        Raises:
            NonFiniteActivationError: if something is not finite, naming the layer or term where it begins.

        """
        render = self._variable.draw(generator)
        if len(self.parts) == 1:
            return self._whole(render, weigh, step)
        return self._in_parts(render, weigh, step)

    def _whole(self, render: Render, weigh: Weigh, step: int) -> tuple[dict[str, float], list[Tensor]]:
        part = self.parts[0]
        leaves = self._variable.leaves(part)
        variable, inputs = render(leaves, part)
        with self._watch.run(variable, inputs, part) as seen:
            values = self._values(self._measure(seen))
            numbers = self._checked(values, render, step)
            total = _weighted(values, weigh(numbers))
            return numbers, self._finite(list(torch.autograd.grad(total, leaves)), step)

    def _in_parts(self, render: Render, weigh: Weigh, step: int) -> tuple[dict[str, float], list[Tensor]]:
        averages: dict[object, Tensor] = {}
        with torch.no_grad():
            for part in self.parts:
                share = (part.stop - part.start) / self._variable.count
                with self._watch.run(*render(self._variable.leaves(part), part), part) as seen:
                    for key, average in self._measure(seen).items():
                        averages[key] = averages[key].add_(average, alpha=share) if key in averages else average * share
        for average in averages.values():
            average.requires_grad_()
        values = self._values(averages)
        numbers = self._checked(values, render, step)
        slopes = torch.autograd.grad(_weighted(values, weigh(numbers)), list(averages.values()))
        gradients = []
        for part in self.parts:
            share = (part.stop - part.start) / self._variable.count
            leaves = self._variable.leaves(part)
            with self._watch.run(*render(leaves, part), part) as seen:
                found = self._measure(seen)
                surrogate = sum((slope * found[key]).sum() for key, slope in zip(averages, slopes, strict=True))
                assert isinstance(surrogate, Tensor)
                gradients.append(torch.autograd.grad(surrogate * share, leaves)[0])
        return numbers, self._finite([torch.cat(gradients)], step)

    @staticmethod
    def _finite(gradients: list[Tensor], step: int) -> list[Tensor]:
        for gradient in gradients:
            # A sum of finite numbers may overflow, so only a suspicious sum is looked at closely.
            if not bool(torch.isfinite(gradient.sum())) and not bool(torch.isfinite(gradient).all()):
                message = f"the gradient of the objective is not finite in step {step} although its terms are"
                raise NonFiniteActivationError(Point("", "input"), message)
        return gradients

    def _measure(self, seen: Seen) -> dict[object, Tensor]:
        return {key: average(seen) for key, average in self._averages.items()}

    def _values(self, averages: Mapping[object, Tensor]) -> dict[str, Tensor]:
        values = {}
        for term in self.terms:
            keys = [average.key for average in term.loss.averages]
            measured = [BatchAverage(self._averages[key], averages[key]) for key in keys]
            values[term.name] = term.loss.value(measured, self._variable.count)
        return values

    def _checked(self, values: Mapping[str, Tensor], render: Render, step: int) -> dict[str, float]:
        numbers = dict(zip(values, torch.stack(list(values.values())).detach().tolist(), strict=True))
        bad = [name for name, number in numbers.items() if not math.isfinite(number)]
        if bad:
            with torch.no_grad():
                for part in self.parts:
                    self._watch.require_finite(render(self._variable.leaves(part), part)[1], step)
            message = f"the term {bad[0]!r} is {numbers[bad[0]]} in step {step} although all activations are finite"
            raise NonFiniteActivationError(Point("", "output"), message)
        return numbers


def _weighted(values: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    return torch.stack([weights[name] * value for name, value in values.items()]).sum()


def _most_detailed(averages: Iterable[Average]) -> dict[object, Average]:
    chosen: dict[object, Average] = {}
    for average in averages:
        known = chosen.get(average.key)
        if known is None or known.detail < average.detail:
            chosen[average.key] = average
    return chosen
