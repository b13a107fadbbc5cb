"""Layer-wise inversion in its straightforward form, as a baseline.

Hooks stay on all 31 BatchNorm layers of the whole network. Each time a layer runs, its hook computes by plain autograd
the KL of the batch's means and variances (x.mean, x.var) and the Laplace NLL from the rows of the activation, with the
dense inverse covariance (Cholesky, made once per hook, as the published code does). To learn the shape of a block's
input the whole network runs on a batch of zeros of the full size. The unknowns are copied in every step and Adam is
torch's default one. The baseline is spared the gradients of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn.functional import mse_loss

from benchmarks.inversion_problem import Problem, clock
from remix.laplace import LaplaceNormal
from remix.networks import Backbone
from remix.statistics import LayerStatistics


class LayerHook:
    """Computes both terms of one BatchNorm layer whenever it runs."""

    def __init__(self, module: nn.BatchNorm2d, layer: LayerStatistics, kind: str) -> None:
        self.layer = layer
        prior = layer.prior(kind)
        assert isinstance(prior, LaplaceNormal | MultivariateNormal)
        factor = torch.linalg.cholesky(prior.covariance_matrix.float())
        self.inverse = torch.cholesky_inverse(factor)
        self.logdet = 2 * factor.diagonal().log().sum()
        self.kl: Tensor | None = None
        self.nll: Tensor | None = None
        self.handle = module.register_forward_hook(self.look)

    def look(self, module: nn.Module, arguments: tuple[Tensor], _: Tensor) -> None:
        assert isinstance(module, nn.BatchNorm2d)
        assert module.running_mean is not None
        assert module.running_var is not None
        (x,) = arguments
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        self.kl = kl(mean, variance, module.running_mean, module.running_var)
        rows = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]) - self.layer.mean.to(x)
        second = rows.T @ rows / len(rows)
        dim = x.shape[1]
        self.nll = 0.5 * (dim * math.log(2 * math.pi) + self.logdet + (self.inverse * second).sum()) / dim


def kl(mean: Tensor, variance: Tensor, model_mean: Tensor, model_variance: Tensor) -> Tensor:
    """Mean over channels of KL(batch || statistics)."""
    variance = variance + 1e-8
    ratio = (variance + (mean - model_mean) ** 2) / model_variance
    return 0.5 * (model_variance.log() - variance.log() - 1 + ratio).mean()


class Pool(nn.Module):
    """From the last block's output to the features."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.pool = backbone.pool

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x)


class Straightforward:
    """The baseline; a context, in which the hooks are on the network."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.network = problem.knowledge.backbone
        self.hooks: list[LayerHook] = []
        self.shape_seconds = 0.0  # spent on the shapes of block inputs

    def __enter__(self) -> Straightforward:
        layers = {layer.point.module: layer for layer in self.problem.prior_layers}
        for name, module in self.network.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                self.hooks.append(LayerHook(module, layers[name], self.problem.kind))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for hook in self.hooks:
            hook.handle.remove()

    def optimise(
        self,
        forward: Callable[[Tensor], Tensor],
        start: Tensor,
        target: Tensor,
        steps: int,
        rate: float,
        statistics: float,
        entering: LayerStatistics | None = None,
    ) -> Tensor:
        """Some Adam steps from ``start``; the best point seen."""
        x = start.clone().requires_grad_()
        optimiser = torch.optim.Adam([x], lr=rate)
        best, best_loss = x.detach().clone(), math.inf
        for _ in range(steps):
            for hook in self.hooks:
                hook.kl = hook.nll = None
            loss = mse_loss(forward(x), target)
            kls = [hook.kl for hook in self.hooks if hook.kl is not None]
            nlls = [hook.nll for hook in self.hooks if hook.nll is not None]
            loss = loss + statistics * torch.stack(kls).sum() + 0.5 * torch.stack(nlls).mean()
            if entering is not None:
                mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
                loss = loss + statistics * kl(mean, variance, entering.mean.to(x), entering.variance.to(x))
            optimiser.zero_grad()
            loss.backward()
            copy = x.detach().clone()
            optimiser.step()
            if loss.item() < best_loss:
                best, best_loss = copy, loss.item()
        return best

    def block_shape(self, block: nn.Module, count: int) -> tuple[int, ...]:
        """What a block receives, from a run of the whole network."""
        shapes: list[tuple[int, ...]] = []

        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            shapes.append(tuple(arguments[0].shape))

        handle = block.register_forward_pre_hook(look)
        began = clock()
        with torch.no_grad():
            self.problem.backbone.pooled(torch.zeros(count, *self.problem.backbone.input_shape))
        self.shape_seconds += clock() - began
        handle.remove()
        return shapes[0]

    def invert(self, block_steps: int, refine_steps: int) -> Tensor:
        """All blocks from the top down, then the whole network."""
        problem, backbone = self.problem, self.problem.backbone
        blocks = backbone.blocks()
        weight = 0.25 * len(blocks) * 20
        target = problem.features
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            assert isinstance(block.module, nn.Module)
            start = torch.randn(self.block_shape(block.module, len(problem.images)))
            entering = problem.knowledge.block_inputs[block.name] if number else None
            if entering is not None:
                spread, mean = entering.variance.sqrt().to(start), entering.mean.to(start)
                start = start * spread[:, None, None] + mean[:, None, None]
            forward = nn.Sequential(block.module, Pool(backbone)) if number == len(blocks) - 1 else block.module
            target = self.optimise(forward, start, target, block_steps, 0.8, weight, entering)
        return self.refine(refine_steps, target)

    def refine(self, steps: int, start: Tensor | None = None) -> Tensor:
        """The whole network, by default from the problem's images."""
        problem = self.problem
        images = problem.images if start is None else start
        return self.optimise(problem.backbone.pooled, images, problem.features, steps, 0.4, 0.25)
