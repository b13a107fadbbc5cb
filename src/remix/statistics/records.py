"""What is known of classes and tasks besides their statistics."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClassRecord", "TaskRecord"]


@dataclass(frozen=True)
class ClassRecord:
    """A class: its name and how many images it was learned from."""

    name: str
    images: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a class must have a name, got {self.name!r}")
        if not _whole(self.images) or self.images < 1:
            raise ValueError(f"class {self.name!r} must have at least one image, got {self.images!r}")


@dataclass(frozen=True)
class TaskRecord:
    """A task: the labels of its classes and how many images it was learned from."""

    labels: tuple[int, ...]
    images: int

    def __post_init__(self) -> None:
        whole = isinstance(self.labels, tuple) and all(_whole(label) and label >= 0 for label in self.labels)
        if not whole or not self.labels or not _whole(self.images) or self.images < 1:
            raise ValueError(f"a task must have labels from 0 up and at least one image, got {self}")


def _whole(value: object) -> bool:
    return type(value) is int
