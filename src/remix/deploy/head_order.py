"""Which output of a head means which class: found from what the network says about images of known classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

__all__ = ["HeadOrder", "assigned_outputs", "order_of_names", "settle_order"]

_CLEAR = 0.5  # of a class's images must be read as one output for that output to be its


@dataclass(frozen=True)
class HeadOrder:
    """The meaning of a head's outputs.

    Attributes:
        outputs: by class of the images, the output that stands for it.
        names: by output.
        right: images that are read as their class.
        notes: what a person should know.
        warnings: what a person should look into.

    """

    outputs: tuple[int, ...]
    names: tuple[str, ...]
    right: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def order_of_names(folders: Sequence[str], names: Sequence[str] | None, outputs: int) -> tuple[int, ...]:
    """By folder, the output that stands for it if ``names`` are the outputs in order (by default the folders' names).

    Raises:
        ValueError: if there are more folders than outputs, another number of names than outputs, or a folder that no
            name fits.

    """
    if names is None:
        if len(folders) > outputs:
            raise ValueError(
                f"there are {len(folders)} folders of images, but the head has {outputs} outputs: name the outputs in "
                "their order with --names, and leave only folders of those classes"
            )
        return tuple(range(len(folders)))
    if len(names) != outputs:
        raise ValueError(f"--names has {len(names)} names, but the head has {outputs} outputs")
    places = {name: place for place, name in enumerate(names)}
    for folder in folders:
        if folder not in places:
            close = get_close_matches(folder, names, n=1)
            hint = f" (is it {close[0]!r}?)" if close else ""
            raise ValueError(f"the folder {folder!r} is not among the --names{hint}: rename it, or correct the names")
    return tuple(places[folder] for folder in folders)


def assigned_outputs(confusion: Tensor) -> tuple[int, ...]:
    """By class, the output that fits it best, each output given once: the assignment with the most images right.

    Args:
        confusion: (classes, outputs): how many images of a class are read as an output.

    """
    _, columns = linear_sum_assignment(confusion.double().numpy(), maximize=True)
    return tuple(int(column) for column in columns)


def settle_order(folders: Sequence[str], names: Sequence[str] | None, confusion: Tensor) -> HeadOrder:
    """Decide which output means which class.

    Names that were given count. Without them the outputs are taken to follow the alphabet, unless the images say
    clearly that they follow another order: then that one is taken.

    Args:
        folders: names of the classes of the images, by label.
        names: of the outputs, as a person gave them, or None.
        confusion: see `assigned_outputs`.

    Raises:
        ValueError: see `order_of_names`.

    """
    outputs = confusion.shape[1]
    total = int(confusion.sum())
    assumed = order_of_names(folders, names, outputs)
    found = assigned_outputs(confusion)
    right, best = _right(confusion, assumed), _right(confusion, found)
    clear = _is_clear(confusion, found)
    if names is not None:
        warnings = []
        if clear and best - right > 0.2 * total:
            warnings.append(
                f"with these names {right} of {total} images are read right; {best} would be if the outputs meant "
                f"{', '.join(_names(folders, found, outputs))}. Are the names in the order of the outputs?"
            )
        warnings += _weak(right, total, outputs)
        return HeadOrder(assumed, tuple(names), right, (), tuple(warnings))
    if clear and best > right:
        order = _names(folders, found, outputs)
        note = (
            f"the head's outputs do not follow the alphabet of the folders ({right} of {total} right that way); the "
            f"images say their order is: {', '.join(order)}. If that is wrong, give the order with --names"
        )
        return HeadOrder(found, order, best, (note,))
    return HeadOrder(assumed, _names(folders, assumed, outputs), right, (), tuple(_weak(right, total, outputs)))


def _right(confusion: Tensor, outputs: Sequence[int]) -> int:
    return int(confusion[torch.arange(len(outputs)), torch.tensor(outputs)].sum())


def _is_clear(confusion: Tensor, outputs: Sequence[int]) -> bool:
    """Whether the images of every class are mostly read as its output."""
    shares = confusion[torch.arange(len(outputs)), torch.tensor(outputs)] / confusion.sum(1).clamp_min(1)
    return bool((shares > _CLEAR).all())


def _names(folders: Sequence[str], assigned: Sequence[int], outputs: int) -> tuple[str, ...]:
    """Outputs that no folder stands for are called by their number."""
    by_output = dict(zip(assigned, folders, strict=True))
    return tuple(by_output.get(i, f"output {i}") for i in range(outputs))


def _weak(right: int, total: int, outputs: int) -> list[str]:
    if outputs < 2 or (right > 2 * total / outputs and right > 0.3 * total):
        return []
    return [
        f"only {right} of {total} images are read right, guessing would get {total / outputs:.0f}: are weights, "
        "backbone, --names, --mean and --std those of this network, and --size one it was trained for?"
    ]
