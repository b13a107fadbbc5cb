"""`remix classes`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remix.cli.output import check_target, note, show
from remix.support.text import as_table, counted, printable

if TYPE_CHECKING:
    from remix.learning import Model

__all__ = ["classes"]


def classes(
    model: str,
    *,
    rename: list[str] | None = None,
    remove: list[str] | None = None,
    merge: list[str] | None = None,
    to_step: int | None = None,
    out: str | None = None,
    overwrite: bool = False,
) -> None:
    """List the classes of a model, or write one with classes renamed, removed or merged, or without its last steps.

    Without a change: the classes, their numbers of images, the steps that taught them, and what can be changed. The
    model itself is never changed; the new one is written whole or not at all, and its history tells what was done.

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it (NAME.remix).
        rename: Classes to call otherwise, as OLD=NEW.
        remove: Classes to delete, with all that is kept of them alone; what still mixes them in is said.
        merge: Classes to make one, as ONE,OTHER=NEW; for exact heads, as if their images had been in one folder.
        to_step: Number of the step to go back to; what later steps taught is gone. For exact heads.
        out: The model file to write, usually NAME.remix.
        overwrite: Replace the file --out if it exists.

    Examples:
        remix classes birds.remix
        remix classes birds.remix --rename "Parus major=great tit" --remove crow --out birds2.remix
        remix classes birds.remix --merge jay,jackdaw=corvid --out birds2.remix
        remix classes birds.remix --to-step 1 --out first.remix
    """
    from remix.deploy.classes import back_to, change_classes
    from remix.learning import load_model, save_model

    changed = bool(rename or remove or merge)
    if to_step is None and not changed:
        if out is not None:
            raise ValueError("nothing is to be changed: add --rename, --remove, --merge or --to-step")
        show("\n".join(_listed(load_model(model))))
        return
    if to_step is not None and changed:
        raise ValueError("--to-step goes alone: rename, remove or merge in the file that it writes")
    if out is None:
        raise ValueError(f"{model} is never changed: name the file to write with --out")
    target = Path(out)
    check_target(Path(model), target, overwrite)
    opened, stays = load_model(model), tuple[str, ...]()
    if to_step is not None:
        found = back_to(opened, to_step)
    else:
        pairs = [_pair("--rename", "OLD=NEW", text, opened.classes) for text in rename or ()]
        groups = [_group(text, opened.classes) for text in merge or ()]
        _check_once([old for old, _ in pairs], [new for new, _ in groups])
        found, stays = change_classes(opened, dict(pairs), remove or (), dict(groups))
    save_model(target, found)
    if found.history:
        show(printable(found.history[-1].notes[-1].partition(": ")[2]))
    show(f"{printable(target)}: {counted(len(found.classes), 'class')}")
    for sentence in stays:
        note(f"what stays: {sentence}")


def _listed(model: Model) -> list[str]:
    from remix.deploy.classes import abilities, taught_classes

    rows = [
        [f"{one.label}", one.name, f"{one.images or 'not told'}", ", ".join(map(str, one.steps)) or "not told"]
        for one in taught_classes(model)
    ]
    return [as_table(("label", "class", "images", "steps"), rows, right=(0, 2)), "", *abilities(model)]


def _pair(option: str, form: str, text: str, known: tuple[str, ...]) -> tuple[str, str]:
    """Of what stands before and after an equals sign; names may have some, so a class that is known ends at one."""
    places = [place for place, letter in enumerate(text) if letter == "="]
    if not places:
        raise ValueError(f"{option} must look like {form}, got {printable(text)}")
    place = next((place for place in places if text[:place].strip() in known), places[0])
    return text[:place].strip(), text[place + 1 :].strip()


def _group(text: str, known: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    old, new = _pair("--merge", "ONE,OTHER=NEW", text, known)
    return new, tuple(name.strip() for name in old.split(",") if name.strip())


def _check_once(old: list[str], new: list[str]) -> None:
    """What a dictionary would hide: a class that is renamed twice, two mergers of one name."""
    for names in (old, new):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{printable(twice[0])} is named twice: a class can be changed once at a time")
