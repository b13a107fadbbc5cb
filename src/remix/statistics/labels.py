"""Labels of classes."""

from __future__ import annotations

from itertools import pairwise

__all__ = ["check_labels"]

_LARGEST = 2**31


def check_labels(labels: tuple[int, ...]) -> None:
    """Check that labels are classes in ascending order, each once.

    Raises:
        ValueError: if not.

    """
    ascending = all(one < other for one, other in pairwise(labels))
    if not labels or not ascending or labels[0] < 0 or labels[-1] >= _LARGEST:
        shown = f"{labels[:10]}" + ("" if len(labels) <= 10 else f" and {len(labels) - 10} more")
        raise ValueError(f"labels must be at least one class, ascending from 0 up, got {shown}")
