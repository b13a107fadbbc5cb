"""What a person should be told, or asked, about a step of learning."""

from __future__ import annotations

import math
from collections.abc import Sequence

from remix.data import DataError
from remix.data.intake import Intake
from remix.networks import OpenedNetwork
from remix.support.text import counted

__all__ = ["check_similar_names", "near_chance", "untrained"]

_ENOUGH = 100  # images per class for a network that begins untrained


def untrained(network: OpenedNetwork, data: Intake) -> list[str]:
    """A sentence if a network that was not trained yet begins with few images; or none."""
    each = len(data.train) / len(data.classes)
    if network.trained or each >= _ENOUGH:
        return []
    return [
        f"the network begins untrained, with {counted(round(each), 'image')} per class: so few seldom suffice; begin "
        "with trained weights (--weights FILE with --backbone, or --backbone hf:PATH)"
    ]


def near_chance(accuracy: float, images: int, classes: int) -> list[str]:
    """A sentence if an accuracy (in percent, of so many images) is what guessing among the classes gives; or none.

    Up to two standard deviations of guessing above its mean.
    """
    chance = 1 / classes
    if classes < 2 or accuracy / 100 > chance + 2 * math.sqrt(chance * (1 - chance) / images):
        return []
    return [
        f"{accuracy:.1f} % of {counted(images, 'image')} right is about what guessing among {classes} classes gives "
        f"({100 * chance:.1f} %): it has not learned; begin with trained weights, or give more images or --epochs"
    ]


def check_similar_names(known: Sequence[str], new: Sequence[str]) -> None:
    """Whether new names differ from the known, and from each other, in more than case and spaces.

    Raises:
        DataError: if not; says what to type.

    """
    seen = {_bare(name): name for name in known}
    for name in new:
        other = seen.setdefault(_bare(name), name)
        if other != name:
            raise DataError(
                f"the class names {other!r} and {name!r} differ only in case or spaces: if they are one class, call "
                f"both {other!r}; if they are two, say so with --similar-names (similar_names=True)"
            )


def _bare(name: str) -> str:
    return " ".join(name.casefold().split())
