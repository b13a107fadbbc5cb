"""Data sets by name: `load("cifar100", root)` and the decorator that adds one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remix.data.errors import DataError, MissingData
from remix.data.images import Splits
from remix.support.text import did_you_mean, printable

__all__ = [
    "Download",
    "Entry",
    "dataset",
    "find_dataset",
    "in_data_folder",
    "list_datasets",
    "load",
    "missing",
    "place_of",
]

Reader = Callable[..., Splits]


@dataclass(frozen=True)
class Download:
    """An official file: where it is to be had, what it is called under the data folder, and how to know it."""

    url: str
    file: str
    md5: str


@dataclass(frozen=True)
class Entry:
    """A registered data set.

    Attributes:
        name: what the user types.
        about: one line.
        read: ``read(root, **options)``, or ``read(**options)`` where nothing has to be on disk (``place`` is empty).
        place: what has to be where under the data folder, for the message when it is not there.
        downloads: official files that together are the data set; ``remix data prepare`` fetches and unpacks them.
        archives: other official archives; unpacked if they lie in the data folder, never fetched.
        counts: official numbers of (train, test) images, where the data set has them.
        classes: official number of classes, the same.
        content: official :func:`remix.data.prepare.content_digest`, where it is known.
        classes_here: how many classes a data folder has, without opening an image; given where every class has files of
            its own, so that some classes are of use without the others.

    """

    name: str
    about: str
    read: Reader
    place: str = ""
    downloads: tuple[Download, ...] = ()
    archives: tuple[Download, ...] = ()
    counts: tuple[int, int] | None = None
    classes: int | None = None
    content: str | None = None
    classes_here: Callable[[Path], int] | None = None

    def part_here(self, root: Path) -> str:
        """ "20 of 200" if the data folder has some classes and not all, else nothing."""
        found = self.classes_here(root) if self.classes_here is not None else 0
        return f"{found} of {self.classes}" if 0 < found < (self.classes or 0) else ""


_entries: dict[str, Entry] = {}


def dataset(
    name: str,
    *,
    place: str = "",
    downloads: tuple[Download, ...] = (),
    archives: tuple[Download, ...] = (),
    counts: tuple[int, int] | None = None,
    classes: int | None = None,
    content: str | None = None,
    classes_here: Callable[[Path], int] | None = None,
) -> Callable[[Reader], Reader]:
    """Decorate a function that reads a data set, so that ``load(name)`` finds it.

    The first line of its docstring is what ``remix datasets`` shows; the arguments are those of :class:`Entry`.

    Raises:
        ValueError: if the name is taken.

    """

    def decorate(read: Reader) -> Reader:
        if name in _entries:
            raise ValueError(f"data set {name!r} is registered already; choose another name")
        about = (inspect.getdoc(read) or "").split("\n")[0].rstrip(".")
        _entries[name] = Entry(name, about, read, place, downloads, archives, counts, classes, content, classes_here)
        return read

    return decorate


def list_datasets() -> list[Entry]:
    """Every registered data set, in the order of registration (smallest first)."""
    return list(_entries.values())


def find_dataset(name: str) -> Entry:
    """The registered data set of this name. Raises DataError, which lists the names, if there is none."""
    if name not in _entries:
        hint = did_you_mean(name, _entries)
        raise DataError(
            f"no data set or folder is called {name!r}{hint}; known: {', '.join(_entries)}; "
            "or give the path of a folder with one sub-folder of images per class"
        )
    return _entries[name]


def load(name: str | Path, root: str | Path | None = None, **options: Any) -> Splits:
    """Read a data set: ``load("digits")``, ``load("cifar100", "/data")``, ``load("photos/", size=64)``.

    Args:
        name: of a registered data set, or the path (also below ``root``) of an image folder.
        root: the data folder; ``None`` means the one that the environment variable REMIX_DATA names.
        options: of the reader: ``size``, ``holdout``, ``seed`` and ``lazy`` for image folders, and so on.

    Raises:
        MissingData: if it is not there; the message says what to put where.
        DataError: for an unknown name, an unknown option, or data that cannot be used.

    """
    name, base = place_of(name, root)
    entry = find_dataset(name)
    known = [key for key in inspect.signature(entry.read).parameters if key != "root"]
    for option in options:
        if option not in known:
            raise DataError(f"data set {entry.name!r} has no option {option!r}; it takes: {', '.join(known) or 'none'}")
    if not entry.place:
        return entry.read(**options)
    if base is None:
        raise MissingData(
            f"where is {entry.name}? Name the data folder (--data DIR, or the environment variable REMIX_DATA) "
            f"that holds {entry.place}"
        )
    return entry.read(base, **options)


def place_of(name: str | Path, root: str | Path | None, create: bool = False) -> tuple[str, Path | None]:
    """The registered name and the folder to read for what the user typed: a name, or the path of an image folder.

    With ``create`` the data folder is made if it is not there; otherwise that raises MissingData. What is neither a
    name nor a folder raises DataError.
    """
    given = root if root is not None else os.environ.get("REMIX_DATA") or None  # an empty one names no folder
    base = None if given is None else Path(given)
    if str(name) not in _entries:
        candidates = [Path(name)] + ([base / name] if base is not None else [])
        folder = next((path for path in candidates if path.is_dir()), None)
        if folder is not None:
            return "folder", folder
    entry = find_dataset(str(name))
    if base is not None and entry.place and not base.is_dir():
        if not create:
            raise MissingData(f"there is no folder {printable(base)}; it should hold {entry.place}")
        try:
            base.mkdir(parents=True)
        except OSError as error:
            raise MissingData(f"cannot make the data folder {printable(base)}: {error.strerror}") from error
    return entry.name, base


def in_data_folder(place: str) -> str:
    """A file or folder as it is named or, where there is none, of that name in the folder that REMIX_DATA names."""
    root = os.environ.get("REMIX_DATA")
    below = Path(root) / place if root else None
    return str(below) if below is not None and not Path(place).exists() and below.exists() else place


def missing(name: str, root: Path) -> MissingData:
    """The error that says what to put where."""
    entry = find_dataset(name)
    fetch = f", or run: remix data prepare {name} --data {printable(root)}" if entry.downloads else ""
    return MissingData(f"{name} was not found in {printable(root)}. Put there {entry.place}{fetch}")
