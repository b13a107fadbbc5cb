"""A linear classifier that grows with every task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class GrowingHead(nn.Module):
    """One linear classifier per task; their outputs side by side are the logits of all classes seen so far.

    Growing adds a classifier and leaves the rows of the old ones as they are.

    Args:
        feature_dim: length of a pooled feature.
        task_sizes: classes of each task to begin with, for example to load a saved head into.
        bias: whether the classifiers have a bias.
        generator: source of the initial weights, drawn from N(0, 0.001^2).

    Raises:
        ValueError: if ``feature_dim`` or a task size is below 1.

    """

    std = 0.001

    def __init__(
        self,
        feature_dim: int,
        task_sizes: Sequence[int] = (),
        *,
        bias: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if feature_dim < 1:
            raise ValueError(f"feature_dim must be at least 1, got {feature_dim}")
        self.feature_dim = feature_dim
        self.bias = bias
        self.classifiers = nn.ModuleList()
        # Follows .to(device, dtype), so that a head without classifiers knows where its first one belongs.
        self._placement: Tensor
        self.register_buffer("_placement", torch.empty(0), persistent=False)
        for size in task_sizes:
            self.grow(size, generator=generator)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        """Number of classes of each task, in order."""
        return tuple(self.classifier(task).out_features for task in range(len(self.classifiers)))

    @property
    def num_classes(self) -> int:
        """Number of classes of all tasks together."""
        return sum(self.task_sizes)

    def grow(self, num_classes: int, *, generator: torch.Generator | None = None) -> nn.Linear:
        """Add a classifier for ``num_classes`` new classes and return it.

        Raises:
            ValueError: if ``num_classes`` is below 1.

        """
        if num_classes < 1:
            raise ValueError(f"a task needs at least one class, got num_classes={num_classes}")
        # Drawn where the generator lives and moved afterwards: a seed means the same weights on every device.
        source = generator.device if generator is not None else torch.device("cpu")
        classifier = nn.Linear(self.feature_dim, num_classes, bias=self.bias, device=source)
        nn.init.normal_(classifier.weight, std=self.std, generator=generator)
        if self.bias:
            nn.init.zeros_(classifier.bias)
        self.classifiers.append(classifier.to(self._placement))
        return self.classifier(-1)

    def start_over(self, *, generator: torch.Generator | None = None) -> None:
        """Forget all weights: the same classifiers, as new as if they had just grown."""
        fresh = GrowingHead(self.feature_dim, self.task_sizes, bias=self.bias, generator=generator)
        self.load_state_dict(fresh.state_dict())

    def classifier(self, task: int) -> nn.Linear:
        """Return the classifier of one task; -1 is the newest.

        Raises:
            IndexError: if there is no such task.

        """
        count = len(self.classifiers)
        if not -count <= task < count:
            raise IndexError(f"the head has {count} tasks (0..{count - 1}), asked for task {task}")
        module = self.classifiers[task]
        assert isinstance(module, nn.Linear)
        return module

    def logits(self, features: Tensor, tasks: Sequence[int] | None = None) -> Tensor:
        """Score pooled features (N, feature_dim) against the classes of ``tasks``, all of them by default.

        Returns:
            (N, classes of those tasks), in the order given.

        Raises:
            ValueError: if the features have another length.
            RuntimeError: if the head has no classes yet.

        """
        if not len(self.classifiers):
            raise RuntimeError("the head has no classes yet: call grow(n) first")
        if features.dim() != 2 or features.shape[1] != self.feature_dim:
            raise ValueError(f"features must be (N, {self.feature_dim}), got {tuple(features.shape)}")
        chosen = range(len(self.classifiers)) if tasks is None else tasks
        return torch.cat([self.classifier(task)(features) for task in chosen], dim=1)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of every class."""
        return self.logits(features)
