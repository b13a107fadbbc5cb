"""Heads: from pooled features to the logits of all classes seen, growing by names; and a backbone with its head."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from remix.networks.backbone import Backbone, Pooling
from remix.support.global_random import undisturbed
from remix.support.registry import Registry

__all__ = [
    "Classifier", "CosineHead", "Head", "LinearHead", "create_head",
    "described_head", "frozen_copy", "list_heads", "register_head", "saved_state",
]  # fmt: skip


class Head(nn.Module):
    """Base class of heads. ``head(features)`` are always the logits of every class, in the order they were learned.

    Attributes:
        kind: the name that it is registered under.
        all_tasks: whether classes of all tasks can be told apart by their logits, as training over all of them needs.
        counts: what the names of those of its weights end with that are whole numbers.
        feature_dim: length of a pooled feature, or of those of several blocks side by side.

    """

    kind: ClassVar[str] = ""
    all_tasks: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        if feature_dim < 1:
            raise ValueError(f"feature_dim must be at least 1, got {feature_dim}")
        self.feature_dim = feature_dim
        # Follows .to(device, dtype), so that a head without classes knows where its first one belongs.
        self._placement: Tensor
        self.register_buffer("_placement", torch.empty(0), persistent=False)

    @property
    def at(self) -> Pooling | None:
        """Which features it takes; None for the pooled output of the last block."""
        return None

    @property
    @abstractmethod
    def task_sizes(self) -> tuple[int, ...]:
        """Number of classes of each task, in order."""

    @property
    def num_classes(self) -> int:
        """Number of classes of all tasks together."""
        return sum(self.task_sizes)

    @abstractmethod
    def grow(self, names: Sequence[str], *, generator: torch.Generator | None = None) -> None:
        """Add the classes of a new task; what is there of old ones stays. Raises ValueError for no names."""

    def check_names(self, names: Sequence[str]) -> None:
        """Whether classes of these names can be added one day. Raises ValueError if not."""

    @abstractmethod
    def newest(self) -> nn.Module:
        """What belongs to the classes of the newest task alone."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What is needed to build it again, as plain JSON; weights are loaded into it afterwards."""

    @classmethod
    @abstractmethod
    def from_description(cls, feature_dim: int, described: Mapping[str, Any]) -> Head:
        """The inverse of `describe`. Raises ValueError for what is none."""

    @classmethod
    @abstractmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of its weights, by name, before it is built. Raises ValueError as `from_description`."""

    def without(self, labels: Collection[int]) -> Head:
        """A copy that does not know these classes; a task of which none is left is left out. Not of all classes."""
        raise ValueError(f"a head of the kind {self.kind!r} cannot lose a class")

    def _kept(self, labels: Collection[int]) -> list[list[int]]:
        """Of every task of which something is left without these classes, the labels of the others."""
        ends = list(accumulate(self.task_sizes))
        rest = [
            [one for one in range(end - size, end) if one not in labels]
            for size, end in zip(self.task_sizes, ends, strict=True)
        ]
        return [mine for mine in rest if mine]

    def start_over(self, *, generator: torch.Generator | None = None) -> None:
        """Forget all weights: the same classes, as new as if they had just grown."""
        raise NotImplementedError(f"a head of the kind {self.kind!r} cannot begin anew")

    def plain(self) -> nn.Module:
        """A copy as simple as can be, for export."""
        return copy.deepcopy(self)


_HEADS: Registry[type[Head]] = Registry("head")
_SOLVED: Registry[type[Head]] = Registry("head")  # not for anybody to choose: methods make them
Kind = TypeVar("Kind", bound=type[Head])


def register_head(name: str, *, chosen: bool = True) -> Callable[[Kind], Kind]:
    """Register a head under a name: ``@register_head("mine")`` above a class that derives from `Head`.

    Args:
        name: of the head.
        chosen: whether a network can begin with it; False for heads that only a method makes.

    Raises:
        ValueError: if the name is taken.

    """

    def register(kind: Kind) -> Kind:
        (_HEADS if chosen else _SOLVED).register(name, kind)
        kind.kind = name
        return kind

    return register


def list_heads() -> list[str]:
    """The names that `create_head` knows."""
    return list(_HEADS)


def create_head(name: str, feature_dim: int, **options: Any) -> Head:
    """A head without classes, by name. Raises ValueError for an unknown one, TypeError for an unknown option."""
    return _HEADS.find(name)(feature_dim, **options)


@undisturbed()
def described_head(feature_dim: int, described: Mapping[str, Any]) -> Head:
    """The head that a description is of. Raises ValueError."""
    return head_class_of(described).from_description(feature_dim, described)


def head_class_of(described: Mapping[str, Any]) -> type[Head]:
    """Of a description; earlier versions knew only linear heads and did not say so. Raises ValueError."""
    kind = str(described.get("kind", LinearHead.kind))
    return _SOLVED[kind] if kind in _SOLVED else _HEADS.find(kind)


@register_head("linear")
class LinearHead(Head):
    """One linear classifier per task; their outputs side by side are the logits.

    Args:
        feature_dim: length of a pooled feature.
        task_sizes: classes of each task to begin with.
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
        super().__init__(feature_dim)
        self.bias = bias
        self.classifiers = nn.ModuleList()
        for size in task_sizes:
            self._add(size, generator)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        """Number of classes of each task, in order."""
        return tuple(self.classifier(task).out_features for task in range(len(self.classifiers)))

    def grow(self, names: Sequence[str], *, generator: torch.Generator | None = None) -> None:
        """Add a classifier for as many classes as there are names."""
        self._add(len(names), generator)

    def _add(self, size: int, generator: torch.Generator | None) -> None:
        if size < 1:
            raise ValueError("a task needs at least one class, got none")
        # Drawn where the generator lives and moved afterwards: a seed means the same weights on every device.
        source = generator.device if generator is not None else torch.device("cpu")
        classifier = nn.Linear(self.feature_dim, size, bias=self.bias, device=source)
        nn.init.normal_(classifier.weight, std=self.std, generator=generator)
        if self.bias:
            nn.init.zeros_(classifier.bias)
        self.classifiers.append(classifier.to(self._placement))

    @torch.no_grad()
    def without(self, labels: Collection[int]) -> Head:
        """Without their rows, in whatever else has one per class too."""
        kept = self._kept(labels)
        rest = described_head(self.feature_dim, {**self.describe(), "tasks": [len(mine) for mine in kept]})
        assert isinstance(rest, LinearHead)
        places = torch.tensor([label for mine in kept for label in mine])
        state = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("classifiers.")}
        rows = {name: tensor[places] if tensor.dim() else tensor for name, tensor in state.items()}
        rest.load_state_dict(rows, strict=False)
        for name in ("weight", "bias") if self.bias else ("weight",):
            every = torch.cat([getattr(one, name) for one in self.classifiers])[places]
            for one, part in zip(rest.classifiers, every.split([len(mine) for mine in kept]), strict=True):
                getattr(one, name).copy_(part)
        return rest.to(self._placement)

    def start_over(self, *, generator: torch.Generator | None = None) -> None:
        """Forget all weights: the same classifiers, as new as if they had just grown."""
        fresh = type(self)(self.feature_dim, self.task_sizes, bias=self.bias, generator=generator)
        self.load_state_dict(fresh.state_dict())

    def newest(self) -> nn.Linear:
        """The last classifier."""
        return self.classifier(-1)

    def classifier(self, task: int) -> nn.Linear:
        """The classifier of one task; -1 is the newest. Raises IndexError if there is no such task."""
        module = self.classifiers[task]
        assert isinstance(module, nn.Linear)
        return module

    def describe(self) -> dict[str, Any]:
        """Sizes, and whether there is a bias."""
        kind = {} if self.kind == "linear" else {"kind": self.kind}  # files of linear heads stay as they were
        return {**kind, "tasks": list(self.task_sizes), "bias": self.bias}

    @classmethod
    def from_description(cls, feature_dim: int, described: Mapping[str, Any]) -> LinearHead:
        """Build it again."""
        tasks, bias = _checked(described)
        return cls(feature_dim, tasks, bias=bias)

    @classmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of weights and biases."""
        tasks, bias = _checked(described)
        found: dict[str, tuple[int, ...]] = {}
        for i, size in enumerate(tasks):
            found[f"classifiers.{i}.weight"] = (size, feature_dim)
            if bias:
                found[f"classifiers.{i}.bias"] = (size,)
        return found

    def plain(self) -> nn.Module:
        """One linear layer."""
        parts = [self.classifier(task) for task in range(len(self.classifiers))]
        layer = nn.Linear(self.feature_dim, self.num_classes, bias=self.bias)
        with torch.no_grad():
            layer.weight.copy_(torch.cat([part.weight for part in parts]))
            if self.bias:
                layer.bias.copy_(torch.cat([part.bias for part in parts]))
        return layer

    def forward(self, features: Tensor) -> Tensor:
        """Pooled features (N, feature_dim) -> logits (N, classes).

        Raises:
            ValueError: if the features have another length.
            RuntimeError: if the head has no classes yet.

        """
        if not len(self.classifiers):
            raise RuntimeError("the head has no classes yet: call grow(names) first")
        if features.dim() != 2 or features.shape[1] != self.feature_dim:
            raise ValueError(f"features must be (N, {self.feature_dim}), got {tuple(features.shape)}")
        return self._logits(features)

    def _logits(self, features: Tensor) -> Tensor:
        return torch.cat([classifier(features) for classifier in self.classifiers], dim=1)


@register_head("cosine")
class CosineHead(LinearHead):
    """Cosines between features and a vector per class, times one learned scale: a class cannot win by its length.

    Args:
        feature_dim, task_sizes, generator: as of `LinearHead`; directions matter, lengths do not.
        scale: of the cosines at the start.

    """

    def __init__(
        self,
        feature_dim: int,
        task_sizes: Sequence[int] = (),
        *,
        bias: bool = False,
        scale: float = 10.0,
        generator: torch.Generator | None = None,
    ) -> None:
        if bias:
            raise ValueError("a head of cosines has no bias")
        super().__init__(feature_dim, task_sizes, generator=generator)
        self.scale = nn.Parameter(torch.tensor(math.log(scale)))

    def _logits(self, features: Tensor) -> Tensor:
        directions = torch.cat([normalize(self.classifier(task).weight) for task in range(len(self.classifiers))])
        return self.scale.exp() * linear(normalize(features), directions)

    @classmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of the vectors and the scale."""
        return {**super().shapes(feature_dim, described), "scale": ()}

    def plain(self) -> nn.Module:
        """A copy."""
        return copy.deepcopy(self)


def _checked(described: Mapping[str, Any]) -> tuple[list[int], bool]:
    tasks, bias = checked_sizes(described), described["bias"]
    if type(bias) is not bool:
        raise ValueError(f"its head is described as {str(dict(described))[:60]}")
    return tasks, bias


def checked_sizes(described: Mapping[str, Any]) -> list[int]:
    """The numbers of classes of tasks in a description. Raises ValueError, KeyError."""
    tasks = list(described["tasks"])
    if not tasks or any(type(size) is not int or size < 1 for size in tasks):
        raise ValueError(f"its head is described as {str(dict(described))[:60]}")
    return tasks


class Classifier(nn.Module):
    """A backbone and a head: images in, logits out.

    Args:
        backbone: the network.
        head: its head; ``feature_dim`` must be the backbone's, unless it takes features of several blocks.

    Raises:
        ValueError: if the two do not fit together.

    """

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        if head.at is None and backbone.feature_dim != head.feature_dim:
            raise ValueError(
                f"the backbone gives features of length {backbone.feature_dim}, the head takes {head.feature_dim}"
            )
        self.backbone = backbone
        self.head = head

    def pooled(self, x: Tensor, start: int = 0) -> Tensor:
        """The features that its head takes, of images or of what block ``start`` receives."""
        return self.backbone.pooled(x, start, self.head.at)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Map images (N, C, H, W), or what block ``start`` receives, to logits (N, num_classes)."""
        logits: Tensor = self.head(self.pooled(x, start))
        return logits


def frozen_copy(network: Classifier, learning: Iterable[nn.Module]) -> Classifier:
    """A copy in eval mode that asks for no gradients: what the network is now, whatever it learns.

    Args:
        network: to be copied.
        learning: its modules that will change. Parameters of all others are shared, not copied; buffers are copied.

    """
    changing = {id(parameter) for module in learning for parameter in module.parameters()}
    shared = {id(parameter): parameter for parameter in network.parameters() if id(parameter) not in changing}
    copied = copy.deepcopy(network, dict(shared))
    return copied.requires_grad_(False).eval()


def saved_state(network: nn.Module, known: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network without parameters that it shares with another, which is saved or known anyway."""
    elsewhere = {id(parameter) for parameter in known.parameters()}
    shared = {name for name, parameter in network.named_parameters() if id(parameter) in elsewhere}
    return {name: tensor for name, tensor in network.state_dict().items() if name not in shared}
