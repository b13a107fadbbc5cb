"""Which image files are in a folder, and which class and part each belongs to. Opens no file."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from remix.data.decode import SUFFIXES
from remix.data.errors import DataError, MissingData
from remix.support.text import printable

__all__ = ["FolderScan", "scan"]

_PARTS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


@dataclass(frozen=True)
class FolderScan:
    """Image files by part and class.

    Attributes:
        classes: names in the order of their labels (alphabetical).
        parts: ``parts["train"][label]`` are the files; "test" and "validation" where the folder has them.

    """

    classes: tuple[str, ...]
    parts: dict[str, tuple[tuple[Path, ...], ...]]


def scan(root: Path) -> FolderScan:
    """List ``root/CLASS/...`` or ``root/{train,val,test}/CLASS/...``.

    Images in deeper folders belong to the class folder above them. A folder that holds only train and val uses val as
    its test part.

    Raises:
        MissingData: if there is no image.
        DataError: for an empty class, a class that is only in the test part, images beside the class folders, classes
            one level deeper than expected, or a name that is not text.

    """
    if not root.is_dir():
        raise MissingData(f"there is no folder {printable(root)}")
    top = _class_folders(root)
    found = {part: path for part, names in _PARTS.items() for name, path in top.items() if name.lower() in names}
    if "train" not in found or not _subfolders(found["train"]):
        classes = _classes(root)
        return FolderScan(tuple(classes), {"train": tuple(classes.values())})
    by_part = {part: _classes(path) for part, path in found.items() if _subfolders(path)}
    if "test" not in by_part and "validation" in by_part:
        by_part["test"] = by_part.pop("validation")
    names = tuple(by_part["train"])
    for part, classes in by_part.items():
        if extra := sorted(set(classes) - set(names)):
            raise DataError(
                f"{printable(found.get(part, root))} has classes that {printable(found['train'])} has not: "
                f"{', '.join(extra)}; every class needs training images"
            )
    return FolderScan(
        names, {part: tuple(classes.get(name, ()) for name in names) for part, classes in by_part.items()}
    )


def _classes(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Class name -> sorted image files below it."""
    folders = _class_folders(folder)
    loose = [path for path in _entries(folder) if _is_image(path)]
    if not folders:
        raise MissingData(
            f"{printable(folder)} has no sub-folders; it needs one per class with images in it, "
            "such as cat/ and dog/, or train/cat/ and test/cat/"
        )
    if loose:
        raise DataError(
            f"{printable(folder)} has images beside its class folders ({printable(loose[0].name)}); "
            "move each into the folder of its class"
        )
    if not any(_is_image(path) for inside in folders.values() for path in _entries(inside)):
        deeper = next((below for inside in folders.values() for below in _subfolders(inside) if _images(below)), None)
        if deeper is not None:
            raise DataError(
                f"the folders in {printable(folder)} hold no images but folders of them ({printable(deeper)}): "
                "give the folder one level deeper, or name the upper folders train, val and test"
            )
    classes = {name: _images(inside) for name, inside in folders.items()}
    if empty := [name for name, files in classes.items() if not files]:
        kinds = ", ".join(sorted(suffix[1:] for suffix in SUFFIXES))
        raise DataError(
            f"no image ({kinds}) in the class folder{'s' * (len(empty) > 1)} {', '.join(empty)} of "
            f"{printable(folder)}; add images or remove the folder"
        )
    return classes


def _class_folders(folder: Path) -> dict[str, Path]:
    """Sub-folders by name, in alphabetical order. Names are NFC, so that a copy made on macOS has the same classes."""
    named: dict[str, Path] = {}
    for path in _subfolders(folder):
        name = unicodedata.normalize("NFC", path.name)
        if not name.isprintable():  # also bytes that are not UTF-8
            raise DataError(f"the folder name {printable(path)} has characters that are not text; rename it")
        if name in named:
            raise DataError(f"{printable(folder)} has the class {name} twice, spelt differently; merge the two folders")
        named[name] = path
    return dict(sorted(named.items()))


def _images(folder: Path) -> tuple[Path, ...]:
    """All image files below a folder, sorted; links to folders are not followed, hidden files are left out."""
    found: list[Path] = []
    for where, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for path in (Path(where, name) for name in files) if _is_image(path)]
    return tuple(sorted(found, key=os.fsencode))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir() and not path.name.startswith(".")]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=os.fsencode)
    except OSError as error:
        _refuse(error)
        raise


def _refuse(error: OSError) -> None:
    raise DataError(f"cannot list the folder {printable(error.filename)}: {error.strerror}") from error
