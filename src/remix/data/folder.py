"""Any folder of photographs, one sub-folder per class, as a data set."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from remix.data.decode import is_picture
from remix.data.errors import DataError, MissingData, Skipped, left_out
from remix.data.file_lists import INDEX, read_parts
from remix.data.images import Splits, hold_out
from remix.data.preprocessing import IMAGENET, Normalisation, Preprocessing
from remix.data.registry import dataset
from remix.support.text import printable

__all__ = ["FolderScan", "files_below", "folder", "normalisation_for", "scan"]


@dataset("folder", place="one sub-folder of images per class (cat/, dog/, ...), or train/cat/ and test/cat/")
def folder(
    root: Path,
    size: int = 224,
    channels: int = 3,
    holdout: float = 0.2,
    seed: int = 0,
    lazy: bool | None = None,
    normalisation: Normalisation | None = None,
    resample: str = "bicubic",
) -> Splits:
    """Your images, one sub-folder per class; type the path instead.

    With sub-folders train and test (or val) those are the parts, otherwise a fraction of every class is held out.
    Every file is decoded once; those that cannot be used are left out and listed in ``Splits.skipped``.

    Args:
        root: the folder.
        size: height and width in pixels: the shorter side is resized, the middle kept.
        channels: 3 for RGB, 1 for grey.
        holdout: fraction of every class for the test part, where the folder has none.
        seed: of that split.
        lazy: decode again each time (True), keep the pixels in memory (False), or by size: up to 1 GiB in memory.
        normalisation: of the channels; that of ImageNet if not given (its grey average for one channel).
        resample: how sizes are changed: bicubic, bilinear or lanczos.

    Raises:
        MissingData, DataError: see :func:`scan`; also for a class of which no file is usable.

    """
    if normalisation is None:
        normalisation = normalisation_for(channels)
    preprocessing = Preprocessing(size, channels, normalisation.mean, normalisation.std, resample)
    found = scan(root)
    listed = {
        part: [(path, label) for label, files in enumerate(by_class) for path in files]
        for part, by_class in found.parts.items()
    }
    parts, skipped = read_parts(root, listed, found.classes, preprocessing, lazy)
    if empty := [name for name, count in parts["train"].counts().items() if not count]:
        unusable = {path for path, label in listed["train"] if found.classes[label] in empty}
        why = "; ".join(left_out((one for one in skipped if one.path in unusable), names=3, reasons=5))
        raise DataError(f"no usable training image of {', '.join(empty)} in {printable(root)}: {why}")
    if "test" not in parts:
        parts["train"], parts["test"] = hold_out(parts["train"], holdout, seed)
    name = root.resolve().name or "folder"
    skipped += found.skipped
    return Splits(parts["train"], parts["test"], normalisation, name, parts.get("validation"), tuple(skipped), root)


def normalisation_for(channels: int) -> Normalisation:
    """That of ImageNet, or its grey average."""
    if channels == 3:
        return IMAGENET
    return Normalisation((sum(IMAGENET.mean) / 3,), (sum(IMAGENET.std) / 3,))


_PARTS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
_LITTER = {INDEX, "thumbs.db", "desktop.ini", "__macosx", "@eadir"}  # ours and that of file managers


@dataclass(frozen=True)
class FolderScan:
    """Files by part and class. Some may be no images: nothing is decoded here.

    Attributes:
        classes: names in the order of their labels (alphabetical).
        parts: ``parts["train"][label]`` are the files; "test" and "validation" where the folder has them.
        skipped: folders that belong to no class or part.

    """

    classes: tuple[str, ...]
    parts: dict[str, tuple[tuple[Path, ...], ...]]
    skipped: tuple[Skipped, ...] = ()


def scan(root: Path) -> FolderScan:
    """List ``root/CLASS/...`` or ``root/{train,val,test}/CLASS/...``.

    Files in deeper folders belong to the class folder above them. A folder that holds only train and val uses val as
    its test part.

    Raises:
        MissingData: if there is no class.
        DataError: for an empty class, a class that is only in the test part, images beside the class folders, classes
            one level deeper than expected, two folders for one part, or a name that is not text.

    """
    if not os.path.isdir(root):
        raise MissingData(f"there is no folder {printable(root)}")
    top = _class_folders(root)
    found = {
        part: [path for name, path in top.items() if name.lower() in spellings and _listed(path)[0]]
        for part, spellings in _PARTS.items()
    }
    if not found["train"]:
        classes = _classes(root)
        return FolderScan(tuple(classes), {"train": tuple(classes.values())})
    if twice := next((paths for paths in found.values() if len(paths) > 1), None):
        raise DataError(f"{printable(root)} has {twice[0].name} and {twice[1].name}, the same part twice; merge them")
    folders = {part: path for part, paths in found.items() for path in paths}
    by_part = {part: _classes(path) for part, path in folders.items()}
    if "test" not in by_part and "validation" in by_part:
        by_part["test"], folders["test"] = by_part.pop("validation"), folders.pop("validation")
    names = tuple(by_part["train"])
    for part, classes in by_part.items():
        if extra := sorted(set(classes) - set(names)):
            raise DataError(
                f"{printable(folders[part])} has classes that {printable(folders['train'])} has not: "
                f"{', '.join(extra)}; every class needs training images"
            )
    beside = f"a folder beside {' and '.join(path.name for path in folders.values())} is not read"
    return FolderScan(
        names,
        {part: tuple(classes.get(name, ()) for name in names) for part, classes in by_part.items()},
        tuple(Skipped(path, beside) for path in top.values() if path not in folders.values()),
    )


def files_below(folder: Path, refuse: Callable[[OSError], None]) -> Iterator[Path]:
    """All files below a folder, folder by folder, each in order of its name; hidden ones and litter are left out.

    Links to folders are not followed: they are among the files, so that they are refused as such. ``refuse`` is called
    with what keeps a folder from being listed.
    """
    for where, folders, files in os.walk(folder, onerror=refuse):
        below = sorted((name for name in folders if not _is_litter(name)), key=os.fsencode)
        folders[:] = [name for name in below if not os.path.islink(os.path.join(where, name))]
        files += [name for name in below if name not in folders] if len(folders) < len(below) else []
        for name in sorted(files, key=os.fsencode):
            if not _is_litter(name):
                yield Path(where, name)


def _classes(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Class name -> sorted files below it."""
    folders = _class_folders(folder)
    if not folders:
        raise MissingData(
            f"{printable(folder)} has no sub-folders; it needs one per class with images in it, "
            "such as cat/ and dog/, or train/cat/ and test/cat/"
        )
    if loose := next((path for path in _listed(folder)[1] if is_picture(path)), None):
        raise DataError(
            f"{printable(folder)} has images beside its class folders ({printable(loose.name)}); "
            "move each into the folder of its class"
        )
    if not any(is_picture(path) for inside in folders.values() for path in _listed(inside)[1]):
        below = (deeper for inside in folders.values() for deeper in _listed(inside)[0])
        if deeper := next((path for path in below if any(map(is_picture, files_below(path, _refuse)))), None):
            raise DataError(
                f"the folders in {printable(folder)} hold no images but folders of them ({printable(deeper)}): "
                "give the folder one level deeper, or name the upper folders train, val and test"
            )
    classes = {name: tuple(sorted(files_below(inside, _refuse), key=os.fsencode)) for name, inside in folders.items()}
    if empty := [name for name, files in classes.items() if not files]:
        raise DataError(
            f"no image in the class folder{'s' * (len(empty) > 1)} {', '.join(empty)} of {printable(folder)}; "
            "add images or remove the folder"
        )
    return classes


def _class_folders(folder: Path) -> dict[str, Path]:
    """Sub-folders by name, in alphabetical order. Names are NFC, so that a copy made on macOS has the same classes."""
    named: dict[str, Path] = {}
    for path in _listed(folder)[0]:
        name = unicodedata.normalize("NFC", path.name)
        if not name.isprintable():  # also bytes that are not UTF-8
            raise DataError(f"the folder name {printable(path)} has characters that are not text; rename it")
        if name in named:
            raise DataError(f"{printable(folder)} has the class {name} twice, spelt differently; merge the two folders")
        named[name] = path
    return dict(sorted(named.items()))


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name.lower() in _LITTER


def _listed(folder: Path) -> tuple[list[Path], list[Path]]:
    """Folders, links to such among them, and files. Asks the disk only where the listing itself does not tell."""
    found: tuple[list[Path], list[Path]] = ([], [])
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: os.fsencode(entry.name)):
                if not _is_litter(entry.name):
                    is_link = entry.is_symlink()
                    is_folder = os.path.isdir(entry.path) if is_link else entry.is_dir(follow_symlinks=False)
                    found[0 if is_folder else 1].append(Path(entry))
    except OSError as error:
        _refuse(error)
    return found


def _refuse(error: OSError) -> None:
    raise DataError(f"cannot list the folder {printable(error.filename)}: {error.strerror}") from error
