"""Charts as plain data: what the page's script draws, and what its tables say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remix.experiments.paired import spread

__all__ = ["Chart", "Line", "Mark", "line_over_seeds"]

Values = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    """A curve with its band; None where there is no value.

    Attributes:
        name: in the legend.
        colour: number of the colour; lines of one method share it.
        mean, low, high: over seeds, as many as the chart has places.
        dashed: how it is drawn.

    """

    name: str
    colour: int
    mean: Values
    low: Values
    high: Values
    dashed: bool = False

    @property
    def texts(self) -> list[str]:
        """Mean ± deviation at every place, for a table."""
        return [
            "" if mean is None else f"{mean:.1f}" if high is None or high == mean else f"{mean:.1f} ± {high - mean:.1f}"
            for mean, high in zip(self.mean, self.high, strict=True)
        ]


@dataclass(frozen=True)
class Mark:
    """A place on the horizontal axis at which something begins."""

    at: int
    name: str


@dataclass(frozen=True)
class Chart:
    """Curves over places 1, 2, ...

    Attributes:
        x, y: what the axes are.
        count: of places.
        lines: the curves.
        marks: what begins where.
        places: names of the places, if they have any.
        logarithmic: whether values are shown by their order of magnitude.
        bounds: of the vertical axis, if they are fixed.

    """

    x: str
    y: str
    count: int
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    places: Sequence[str] = ()
    logarithmic: bool = False
    bounds: tuple[float, float] | None = None

    def to_plain(self, most: int) -> dict[str, Any]:
        """As JSON, numbers shortened to five digits; of more than ``most`` places about so many, evenly spread."""
        stride = -(-self.count // most)
        kept = [*range(0, self.count - 1, stride), self.count - 1]
        return {
            "x": self.x,
            "y": self.y,
            "count": len(kept),
            "xs": [place + 1 for place in kept],
            "marks": [{"at": mark.at, "name": mark.name} for mark in self.marks],
            "places": list(self.places),
            "log": self.logarithmic,
            "bounds": self.bounds,
            "lines": [
                {
                    "name": line.name,
                    "colour": line.colour,
                    "dashed": line.dashed,
                    "mean": _short(line.mean, kept),
                    **({} if line.low == line.mean else _edges(line, kept)),
                }
                for line in self.lines
            ],
        }


def line_over_seeds(name: str, colour: int, seeds: Sequence[Values], dashed: bool = False) -> Line:
    """Mean and mean ± standard deviation at every place over the seeds that have a finite value there.

    Args:
        name, colour, dashed: of the line.
        seeds: for every seed as many values.

    """
    mean: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    for values in zip(*seeds, strict=True):
        known = [value for value in values if value is not None and math.isfinite(value)]
        found = spread(known) if known else None
        mean.append(found.mean if found else None)
        low.append(found.mean - (found.std or 0.0) if found else None)
        high.append(found.mean + (found.std or 0.0) if found else None)
    return Line(name, colour, mean, low, high, dashed)


def _edges(line: Line, kept: Sequence[int]) -> dict[str, list[float | None]]:
    return {"low": _short(line.low, kept), "high": _short(line.high, kept)}


def _short(values: Values, kept: Sequence[int]) -> list[float | None]:
    chosen = (values[place] for place in kept)
    return [None if value is None or not math.isfinite(value) else float(f"{value:.5g}") for value in chosen]
