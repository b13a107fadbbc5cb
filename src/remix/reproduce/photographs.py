"""Photographs for targets that look at ImageNet classes: which classes, where they are, and whether they are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remix.support.text import printable

__all__ = ["PAPER_CLASSES", "count_images", "find_photographs", "layout", "parse_classes"]

PAPER_CLASSES = {"n02113978": "dog", "n04285008": "car", "n01882714": "koala", "n03457902": "greenhouse"}
"""The classes of the paper's sample and likelihood figures, by their ImageNet numbers."""


def parse_classes(text: str | None) -> tuple[str, ...] | None:
    """Names of folders separated by commas, or None. Raises ValueError for none at all, or one that comes twice."""
    if text is None:
        return None
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    if not names or any(Path(name).name != name for name in names):
        raise ValueError(f"--classes takes names of folders separated by commas, got {printable(text)!r}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"--classes has {printable(twice)} twice")
    return names


def find_photographs(root: str, classes: Sequence[str], parts: Sequence[str]) -> Path:
    """The folder that has the parts, each with a sub-folder of images for every class.

    Args:
        root: what was given with ``--data``: that folder, or one with ``imagenette/`` in it.
        classes: names of sub-folders.
        parts: "train", "val".

    Raises:
        ValueError: if there is none, or a class has no images in a part; says how to lay them out.

    """
    base = Path(root)
    folder = next((one for one in (base, base / "imagenette") if (one / "train").is_dir()), None)
    missing = [
        (part, name) for part in parts for name in classes if folder is None or not count_images(folder / part / name)
    ]
    if folder is not None and not missing:
        return folder
    lacks = f" (it lacks {'/'.join(missing[0])})" if folder is not None else ""
    raise ValueError(
        f"--data {printable(base)} must have {layout(classes, parts)}{lacks}; other folders with --classes"
    )


def layout(classes: Sequence[str], parts: Sequence[str]) -> str:
    """How folders of photographs lie, in words: ``train/NAME/ with photographs of n02113978 (dog)``."""
    told = ", ".join(f"{name} ({PAPER_CLASSES[name]})" if name in PAPER_CLASSES else name for name in classes)
    return f"{' and '.join(f'{part}/NAME/' for part in parts)} with photographs of {told}"


def count_images(folder: Path) -> int:
    """Files in a folder, hidden ones left out; 0 if there is no such folder."""
    return sum(file.is_file() and not file.name.startswith(".") for file in folder.iterdir()) if folder.is_dir() else 0
