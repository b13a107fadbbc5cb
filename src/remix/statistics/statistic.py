"""What a memory may keep: statistics of registered types, none of which can hold an image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from remix.networks import Classifier
from remix.support.registry import Registry

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Statistic", "StoredItem", "Tensors", "integers", "register_statistic", "size_of", "statistic_classes"]


class StoredItem(NamedTuple):
    """One row of `Memory.describe`."""

    kind: str
    name: str
    detail: str
    bytes: int


class Statistic(ABC):
    """Something that is kept between tasks. A memory holds one of each type, by ``name``.

    Derive, decorate with `register_statistic`, and a memory keeps it, models and checkpoints save it, and
    ``memory.get(NAME)`` gives it back. Its tensors are over coordinates and classes, never over images.
    """

    name: ClassVar[str]
    precise: ClassVar[bool] = False
    """Whether a model file gives its numbers back in double precision, as they were, instead of single."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What to save, by name."""

    @abstractmethod
    def describe(self) -> Any:
        """What else is needed to make it again, as plain JSON."""

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> Self:
        """Make it again; every part is checked as if it came from elsewhere. Raises ValueError, KeyError."""

    @abstractmethod
    def merge(self, other: Self, classes: tuple[int, int]) -> Self:
        """Of the old classes (this) and the new ones (other), with their numbers."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""

    @abstractmethod
    def without(self, labels: Collection[int]) -> tuple[Self | None, str]:
        """Without what is these classes' own, or None if nothing is left; and what stays in it of them, in words."""

    def relabelled(self, labels: Mapping[int, int]) -> Self:
        """With other labels of its classes: itself, if it knows none. Raises ValueError for two with the same."""
        return self

    @abstractmethod
    def stored(self) -> list[StoredItem]:
        """What is kept, for a person."""

    def check(self, network: Classifier) -> None:  # noqa: B027 (some fit any network)
        """Whether it is of this network and its classes. Raises ValueError if not."""


_CLASSES: Registry[type[Statistic]] = Registry("statistic")
Kind = TypeVar("Kind", bound=type[Statistic])


def register_statistic(kind: Kind) -> Kind:
    """Decorate a `Statistic` so that memories keep it. Raises ValueError if its name is taken."""
    if kind.name in ("classes", "tasks"):
        raise ValueError(f"a memory keeps {kind.name} by itself: choose another name")
    _CLASSES.register(kind.name, kind)
    return kind


def statistic_classes() -> Registry[type[Statistic]]:
    """The registered types, by name."""
    return _CLASSES


class Tensors:
    """Tensors of a file by name, each taken once: what nobody takes has no place in a memory."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
        self._tensors, self._prefix = dict(tensors), prefix

    def pop(self, name: str) -> Tensor:
        """Take one. Raises ValueError if it is not there."""
        if self._prefix + name not in self._tensors:
            raise ValueError(f"the tensor {self._prefix + name!r} is missing")
        return self._tensors.pop(self._prefix + name)

    def under(self, prefix: str) -> Tensors:
        """Those whose names begin so, taken from these."""
        part = Tensors({}, self._prefix + prefix)
        part._tensors = self._tensors
        return part

    def require_empty(self) -> None:
        """Raise ValueError if one is left."""
        for name, tensor in self._tensors.items():
            raise ValueError(f"it holds {name!r} of shape {tuple(tensor.shape)}, which no memory holds")


def integers(values: Any) -> tuple[int, ...]:
    """A list of whole numbers from JSON. Raises ValueError if it is none."""
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"expected a list of whole numbers, got {str(values)[:60]}")
    return tuple(values)


def size_of(tensors: Sequence[Tensor]) -> int:
    """Bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
