"""Training the selectors of many classes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from remix.statistics.selectors import BN_EPS, SLOPE, Score, Selectors, unit_lengths

__all__ = ["SelectorRecipe", "train_selectors"]

_MOMENTUM = 0.1  # of the running statistics
_SIDE_BY_SIDE = 50  # classes trained together: more gain nothing and take memory


@dataclass(frozen=True)
class SelectorRecipe:
    """How selectors are trained and used.

    Attributes:
        epochs: of the training.
        batch: features per step.
        rate: of Adam.
        score: by which a candidate is judged: the log-mean-exp of its cosines to the chosen ones, or their mean.
        pool: whether features are chosen from one pool and left as they were drawn, instead of in steps and given the
            mean and spread of their class back.
        again: whether those of old classes are trained again after every task, on pseudo-samples; else every selector
            is trained once, on real features.

    """

    epochs: int = 200
    batch: int = 64
    rate: float = 1e-2
    score: Score = "mean"
    pool: bool = False
    again: bool = True

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2 or not self.rate > 0:
            raise ValueError(f"epochs >= 1, batch >= 2 and rate > 0 are needed, got {self}")


def train_selectors(
    features: Mapping[int, Tensor], recipe: SelectorRecipe | None = None, generator: torch.Generator | None = None
) -> Selectors:
    """Train one selector per class by Adam on the contrastive loss.

    Each class has its own weights, its own minibatches of min(batch, n) rows (the remainder of an epoch is dropped) and
    keeps the weights that had its lowest minibatch loss. A class with a single row cannot be spread: its selector
    stays as it was drawn, and selection with it is a random choice.

    Args:
        features: by class, pooled features (n, D).
        recipe: settings.
        generator: of the initial weights and the minibatches (on the CPU).

    Raises:
        ValueError: for no classes, or features that are empty, not finite, or of different lengths.

    """
    recipe = recipe or SelectorRecipe()
    _check(features)
    labels = sorted(features)
    seeds = torch.randint(2**62, (len(labels),), generator=generator).tolist()
    generators = {label: torch.Generator().manual_seed(seed) for label, seed in zip(labels, seeds, strict=True)}
    trained: dict[int, tuple[Selectors, int]] = {}
    for group in _groups(features, recipe.batch):
        rows = [features[label].detach() for label in group]
        selectors = _train(group, rows, recipe, [generators[label] for label in group])
        trained |= {label: (selectors, place) for place, label in enumerate(group)}
    return Selectors.gather(trained)


def _check(features: Mapping[int, Tensor]) -> None:
    if not features:
        raise ValueError("features is empty: there is no class to train a selector for")
    dim = next(iter(features.values())).shape[-1]
    for label, rows in features.items():
        if rows.dim() != 2 or rows.shape[1] != dim or not len(rows) or not rows.is_floating_point():
            raise ValueError(
                f"features of class {label} must be floating point (n, {dim}) with n >= 1, got {tuple(rows.shape)}"
            )
        if not bool(torch.isfinite(rows).all()):
            raise ValueError(f"features of class {label} must be finite, but hold NaN or infinite values")


def _groups(features: Mapping[int, Tensor], batch: int) -> Iterator[list[int]]:
    """Classes to train together: of one minibatch size, and of about as many rows."""
    by_width: dict[int, list[int]] = {}
    for label in sorted(features, key=lambda label: len(features[label])):
        by_width.setdefault(min(batch, len(features[label])), []).append(label)
    for labels in by_width.values():
        for start in range(0, len(labels), _SIDE_BY_SIDE):
            yield sorted(labels[start : start + _SIDE_BY_SIDE])


@torch.no_grad()
def _train(
    labels: list[int], features: list[Tensor], recipe: SelectorRecipe, generators: Sequence[torch.Generator]
) -> Selectors:
    rows = torch.cat([part.to(features[0]) for part in features])
    network = _Networks(rows.shape[1], generators, rows)
    sizes = [len(part) for part in features]
    width = min(recipe.batch, sizes[0])
    # A class with fewer rows than others is done after fewer steps, and then runs along without being recorded.
    own_steps = torch.tensor([recipe.epochs * (size // width) for size in sizes], device=rows.device)
    steps = int(own_steps.max())
    order = torch.stack([_minibatches(*pair, width, steps) for pair in zip(sizes, generators, strict=True)], 1)
    order = (order + torch.tensor([0, *sizes[:-1]]).cumsum(0)[:, None]).flatten(1).to(rows.device)
    optimiser = torch.optim.Adam(network.parameters, lr=recipe.rate, fused=True)
    best = [[tensor.clone() for tensor in layer] for layer in network.state()]
    lowest = torch.full((len(labels),), torch.inf, dtype=rows.dtype, device=rows.device)
    for step in range(steps):
        losses = network.loss_and_gradient(rows.index_select(0, order[step]).view(len(labels), width, -1))
        # Recorded before the step: the state that is kept is the one that had the loss.
        better = ((losses < lowest) & (step < own_steps)).nonzero()[:, 0]
        if len(better):
            lowest[better] = losses[better]
            for kept, layer in zip(best, network.state(), strict=True):
                for target, tensor in zip(kept, layer, strict=True):
                    target[better] = tensor[better]
        optimiser.step()
    return Selectors(tuple(labels), *(torch.cat(pair, 1) for pair in zip(*best, strict=True)))


def _minibatches(size: int, generator: torch.Generator, width: int, steps: int) -> Tensor:
    """Rows of one class for every step, (steps, width): shuffled anew in every epoch."""
    per_epoch = size // width
    epochs = -(-steps // per_epoch)
    orders = [torch.randperm(size, generator=generator)[: per_epoch * width] for _ in range(epochs)]
    return torch.cat(orders).reshape(-1, width)[:steps]


class _Networks:
    """2 x [Linear, BatchNorm in train mode, LeakyReLU] and unit length, for k classes at once.

    The gradient is written out: that takes half the passes over memory that automatic differentiation takes; a test
    holds it to the latter.

    Args:
        dim: D.
        generators: one per class, on the CPU: the weights of a class do not depend on its company.
        like: dtype and device.

    """

    def __init__(self, dim: int, generators: Sequence[torch.Generator], like: Tensor) -> None:
        self.layers = [_Layer(dim, generators, like) for _ in range(2)]

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained; `loss_and_gradient` fills in their ``grad``."""
        return [tensor for layer in self.layers for tensor in (layer.weight, layer.scale, layer.shift)]

    def state(self) -> list[list[Tensor]]:
        """By layer, its tensors in the order of the fields of `Selectors`."""
        return [layer.state() for layer in self.layers]

    def loss_and_gradient(self, rows: Tensor) -> Tensor:
        """Contrastive losses (k,) of minibatches (k, B, D); sets the gradient of their sum."""
        hidden = rows
        for layer in self.layers:
            hidden = layer.forward(hidden)
        lengths = unit_lengths(hidden)
        z = hidden / lengths
        count = rows.shape[1]
        similarity = torch.bmm(z, z.mT).exp_()
        totals = similarity.sum(2, keepdim=True)
        losses = (totals / count).log().mean(1)[:, 0]
        # d loss / d cos_ij = exp(cos_ij) / (B sum_j exp(cos_ij)), and cos is symmetric in z.
        slope = similarity.div_(totals * count)
        grad = torch.bmm(slope + slope.mT, z)
        radial = (grad * z).sum(2, keepdim=True)
        # Through hidden / (|hidden| + eps): |z| = |hidden| / lengths is 1 but for eps, and 0 for a zero row.
        ratio = torch.linalg.vector_norm(z, dim=2, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
        grad = grad.sub_(z * (radial / ratio)).div_(lengths)
        grad = self.layers[1].backward(grad)
        self.layers[0].backward(grad, to_input=False)
        return losses


class _Layer:
    def __init__(self, dim: int, generators: Sequence[torch.Generator], like: Tensor) -> None:
        bound = dim**-0.5

        def uniform(*shape: int) -> Tensor:
            draws = [torch.rand(shape, generator=generator) for generator in generators]
            return ((torch.stack(draws) * 2 - 1) * bound).to(like)

        self.weight = uniform(dim, dim)
        # BatchNorm takes the bias out again, so its gradient is zero: it stays as drawn.
        self.bias = uniform(1, dim)
        self.scale, self.shift = torch.ones_like(self.bias), torch.zeros_like(self.bias)
        self.mean, self.variance = torch.zeros_like(self.bias), torch.ones_like(self.bias)
        self._saved: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def state(self) -> list[Tensor]:
        return [self.weight, self.bias, self.scale, self.shift, self.mean, self.variance]

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[1]
        y = torch.bmm(x, self.weight)
        mean = y.mean(1, keepdim=True)
        y.sub_(mean)
        variance = y.square().mean(1, keepdim=True)
        self.mean.lerp_(mean.add_(self.bias), _MOMENTUM)
        self.variance.lerp_(variance * (count / max(count - 1, 1)), _MOMENTUM)
        inverse = (variance + BN_EPS).rsqrt_()
        y.mul_(inverse)
        before = torch.addcmul(self.shift, y, self.scale)
        self._saved = x, y, inverse, before
        return leaky_relu(before, SLOPE)

    def backward(self, grad: Tensor, to_input: bool = True) -> Tensor:
        """Gradient in the output -> gradient in the input; sets the parameters' gradients."""
        assert self._saved is not None
        x, y, inverse, before = self._saved
        count = x.shape[1]
        grad = torch.ops.aten.leaky_relu_backward(grad, before, SLOPE, False)
        self.shift.grad = grad.sum(1, keepdim=True)
        self.scale.grad = (grad * y).sum(1, keepdim=True)
        grad.sub_(self.shift.grad / count).addcmul_(y, self.scale.grad, value=-1 / count)
        grad.mul_(self.scale * inverse)
        self.weight.grad = torch.bmm(x.mT, grad)
        return torch.bmm(grad, self.weight.mT) if to_input else grad
