"""Numbers that the paper prints in its tables, to stand beside ours."""

from __future__ import annotations

from importlib import resources
from typing import Any

from remix.experiments.paired import Spread
from remix.support.documents import parse_json

__all__ = ["AVERAGE", "LAST", "UNSELECTED", "Published", "paper_numbers", "published_clip", "published_last"]

UNSELECTED = "pmi without selection"
LAST, AVERAGE = "last accuracy", "average incremental accuracy"
_NAMES = {  # ours, of what the paper calls otherwise
    "Upper bound": "joint",
    "R-DFCIL": "rdfcil",
    "PMI w/o CFS": UNSELECTED,
}

Published = dict[str, dict[str, dict[str, Spread]]]
"""By preset, by metric, then by the name that the method has here."""


def paper_numbers() -> dict[str, Any]:
    """By table, as printed; see paper.json beside this file."""
    text = resources.files("remix.reproduce").joinpath("paper.json").read_text("utf-8")
    numbers: dict[str, Any] = parse_json(text)
    return numbers


def published_last() -> Published:
    """Table 1: last accuracy, with its deviation over the paper's runs."""
    numbers = paper_numbers()
    means, deviations = numbers["table 1"], numbers["standard deviation in table 1"]
    return {
        preset: {
            LAST: {
                _NAMES.get(name, name.lower()): Spread(means[name][place], stds[place], numbers["runs in table 1"])
                for name, stds in deviations.items()
                if means[name][place] is not None
            }
        }
        for place, preset in enumerate(numbers["presets of table 1"])
    }


def published_clip() -> Published:
    """Table 2: average incremental and last accuracy, each of a single run."""
    numbers = paper_numbers()
    rows = {name.lower(): values for name, values in numbers["table 2"].items() if name != "columns"}
    return {
        preset: {
            metric: {name: Spread(values[2 * place + column], None, 1) for name, values in rows.items()}
            for column, metric in enumerate((AVERAGE, LAST))
        }
        for place, preset in enumerate(numbers["presets of table 2"])
    }
