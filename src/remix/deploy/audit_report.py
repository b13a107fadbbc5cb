"""What an audit found, as a table, a figure and numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.deploy.audit import SPACES, Audit, SpaceAudit
from remix.deploy.figures import GridRow, save_grid
from remix.support.files import write_text
from remix.support.tables import as_table

__all__ = ["audit_numbers", "audit_table", "write_report"]

_PAIRS = 6  # dreams in the figure


def audit_table(result: Audit) -> str:
    """The distances, for a terminal."""
    rows = []
    for space in result.spaces:
        for who, distances in (("dreams", space.dreams.distance), (result.reference, space.others.distance)):
            numbers = [distances.min(), distances.quantile(0.05), distances.median()]
            near = f"{space.near} of {len(distances)}" if who == "dreams" else ""
            rows.append([space.space, who, *(f"{float(number):.3g}" for number in numbers), near])
    head = ("distance to the nearest training image", "of", "least", "5%", "median", "dreams below that 5%")
    units = "\n".join(f"{space}: {unit}" for space, unit in SPACES.items())
    return as_table(head, rows, right=(2, 3, 4, 5)) + "\n\n" + units


def audit_numbers(result: Audit, dreams: int, train: int) -> dict[str, Any]:
    """The distances and the conclusion as plain JSON, with the numbers of dreams and training images."""

    def told(space: SpaceAudit) -> dict[str, Any]:
        def spread(distances: Tensor) -> dict[str, float]:
            points = {"least": 0.0, "5%": 0.05, "median": 0.5}
            return {name: round(float(distances.quantile(q)), 5) for name, q in points.items()}

        return {
            "unit": SPACES[space.space],
            "dreams": spread(space.dreams.distance),
            result.reference: spread(space.others.distance),
            "dreams_below_5%": space.near,
            "stands_out": space.stands_out,
        }

    return {
        "counts": {
            "dreams": dreams,
            "training images": train,
            result.reference: len(result.spaces[0].others.distance),
        },
        "spaces": {space.space: told(space) for space in result.spaces},
        "surer_of_training_images": None if result.membership is None else round(result.membership, 4),
        "conclusion": result.conclusion(),
    }


def write_report(figure: Path, result: Audit, dreams: Tensor, names: Sequence[str], train: Tensor) -> Path:
    """Write a figure of the nearest pairs, and the numbers as JSON beside it.

    Args:
        figure: NAME.png; the numbers go to NAME.json.
        result: of the audit.
        dreams: uint8 (N, C, H, W).
        names: of their classes.
        train: the training images, uint8 (M, C, H, W).

    Returns:
        the file of the numbers.

    """
    save_grid(figure, _pairs(result, dreams, names, train), _title(result))
    numbers = figure.with_suffix(".json")
    content = audit_numbers(result, len(dreams), len(train))
    write_text(numbers, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return numbers


def _title(result: Audit) -> str:
    return "left to right: a dream; the nearest training image in " + "; in ".join(s.space for s in result.spaces)


def _pairs(result: Audit, dreams: Tensor, names: Sequence[str], train: Tensor) -> list[GridRow]:
    """The dreams that are nearest to a training image in any space, each with its nearest images."""
    ranks = torch.stack([space.dreams.distance.argsort().argsort() for space in result.spaces])
    rows = []
    for place in ranks.min(0).values.argsort(stable=True)[:_PAIRS].tolist():
        found = [train[int(space.dreams.index[place])] for space in result.spaces]
        images = torch.stack([dreams[place], *found]).float() / 255
        remark = ", ".join(f"{float(space.dreams.distance[place]):.3g}" for space in result.spaces)
        rows.append(GridRow(names[place], images, remark))
    return rows
