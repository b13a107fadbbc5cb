"""Training the selectors of many classes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.statistics.selector_network import SelectorNetwork
from remix.statistics.selectors import Selectors

__all__ = ["SelectorRecipe", "train_selectors"]

_SIDE_BY_SIDE = 50  # classes trained together: more gain nothing and take memory


@dataclass(frozen=True)
class SelectorRecipe:
    """Settings of the training; the defaults are the published ones."""

    epochs: int = 200
    batch: int = 64
    rate: float = 1e-2

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
    network = SelectorNetwork(rows.shape[1], generators, rows)
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
