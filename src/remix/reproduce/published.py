"""Numbers that the paper prints in its tables, to stand beside ours."""

from __future__ import annotations

from importlib import resources
from typing import Any

from remix.experiments.paired import Spread
from remix.support.documents import parse_json

__all__ = ["UNSELECTED", "paper_numbers", "published_last"]

UNSELECTED = "pmi without selection"
_NAMES = {  # ours, of what the paper calls otherwise
    "Upper bound": "joint",
    "R-DFCIL": "rdfcil",
    "PMI w/o CFS": UNSELECTED,
}


def paper_numbers() -> dict[str, Any]:
    """By table, as printed; see paper.json beside this file."""
    text = resources.files("remix.reproduce").joinpath("paper.json").read_text("utf-8")
    numbers: dict[str, Any] = parse_json(text)
    return numbers


def published_last() -> dict[str, dict[str, Spread]]:
    """By preset, then by the name that the method has here: last accuracy, with its deviation over the paper's runs."""
    numbers = paper_numbers()
    means, deviations = numbers["table 1"], numbers["standard deviation in table 1"]
    return {
        preset: {
            _NAMES.get(name, name.lower()): Spread(means[name][place], stds[place], numbers["runs in table 1"])
            for name, stds in deviations.items()
            if means[name][place] is not None
        }
        for place, preset in enumerate(numbers["presets of table 1"])
    }
