"""Are dreams nearer to training images than other images of the same kind are?

The measure is the distance to the nearest training image, once for dreams and once for images that the network has not
been trained on. If dreams were copies, they would be nearer. Beside it stands how well the network's confidence alone
tells training images from others, which needs no dreams.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from remix.data import ImageDataset
from remix.deploy.figures import GridRow, save_grid
from remix.learning import Model
from remix.networks.probe import evaluating
from remix.support.files import write_text
from remix.support.text import as_table

__all__ = ["SPACES", "Audit", "Nearest", "SpaceAudit", "audit", "audit_data", "audit_table", "nearest", "write_report"]

SPACES = {
    "pixels": "root mean square difference, in levels of 0..255",
    "pixels, contrast removed": "1 - correlation: 0 is the same picture up to brightness and contrast",
    "coarse pixels": "1 - correlation of averages over 8 x 8 fields: fine noise does not count",
    "features": "distance of the network's features, in units of the training images' spread",
}
"""Where distances are measured, and their units."""

_TAIL = 0.05
_COARSE = 8  # fields on a side
_ROWS = 512  # training images compared at once
_MOST = 2000  # held-out images; more would not change a quantile
_PAIRS = 6  # dreams in the figure


@dataclass(frozen=True, eq=False)
class Nearest:
    """Distance (N,) to the nearest training image, and which (N,) that is."""

    distance: Tensor
    index: Tensor


@dataclass(frozen=True, eq=False)
class SpaceAudit:
    """Distances in one space."""

    space: str
    dreams: Nearest
    others: Nearest

    @property
    def threshold(self) -> float:
        """So near are the nearest 5 percent of the other images."""
        return float(self.others.distance.quantile(_TAIL))

    @property
    def near(self) -> int:
        """Number of dreams that are nearer than that."""
        return int((self.dreams.distance < self.threshold).sum())

    @property
    def stands_out(self) -> bool:
        """Whether more dreams are that near than chance explains (two standard deviations of a count)."""
        count = len(self.dreams.distance)
        return self.near > _TAIL * count + 2 * math.sqrt(_TAIL * (1 - _TAIL) * count)


@dataclass(frozen=True, eq=False)
class Audit:
    """Distances in all spaces.

    Attributes:
        spaces: in the order of `SPACES`.
        reference: what the dreams are compared with: "held-out images" or "other training images".
        membership: how often the network is surer of the class of a training image than of that of a held-out one:
            0.5 is chance, 1 always. None without held-out images or their labels.

    """

    spaces: tuple[SpaceAudit, ...]
    reference: str
    membership: float | None = None

    def conclusion(self) -> str:
        """What may be concluded, in a sentence or two."""
        found = [space for space in self.spaces if space.stands_out]
        if not found:
            return (
                f"No sign of copies: dreams are not nearer to training images than {self.reference} are, in any of the "
                "measures. That is no proof that nothing about a training image can be learned from the model."
            )
        told = "; ".join(
            f"in {space.space} {space.near} of {len(space.dreams.distance)} dreams are nearer to a training image than "
            f"95% of the {self.reference} are" for space in found
        )  # fmt: skip
        remark = "look at the nearest pairs before the model or its dreams are given away."
        if [space.space for space in found] == ["pixels"]:
            remark = (
                "smooth images of low contrast are near to all images in plain pixels, and with contrast removed these "
                "do not stand out, so it is no sign of copies by itself; " + remark
            )
        elif [space.space for space in found] == ["features"]:
            remark = (
                "dreams are made to have the features of their class, so that is no sign of copied pixels by itself; "
                + remark
            )
        return f"Dreams stand out: {told} (5% would be chance): {remark}"


def audit_data(model: Model, dreams: ImageDataset, train: ImageDataset, held_out: ImageDataset | None = None) -> Audit:
    """`audit` of data sets, whose classes are called as the model's are; of many held-out images 2000 by chance."""
    images, labels = train.batch(range(len(train)))
    dreamed, _ = dreams.batch(range(len(dreams)))
    if held_out is None:
        return audit(model, dreamed, images)
    chosen = torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))[:_MOST]
    unseen, others = held_out.batch(chosen)
    places = {name: label for label, name in enumerate(model.classes)}

    def of_model(data: ImageDataset, labels: Tensor) -> Tensor:
        return labels.new_tensor([places.get(name, -1) for name in data.classes])[labels]

    return audit(model, dreamed, images, unseen, (of_model(train, labels), of_model(held_out, others)))


def audit(
    model: Model,
    dreams: Tensor,
    train: Tensor,
    held_out: Tensor | None = None,
    labels: tuple[Tensor, Tensor] | None = None,
    batch: int = 64,
) -> Audit:
    """Compare dreams and held-out images with training images.

    Args:
        model: on the device where it runs.
        dreams: uint8 (N, C, H, W), as the model's preprocessing makes images.
        train: the same of the training images.
        held_out: the same of images that were not trained on; without them every training image is compared with the
            others.
        labels: int64 of the training and of the held-out images, -1 for classes that the model does not know.
        batch: images at a time in the network.

    Raises:
        ValueError: for no dreams, or fewer than two images to compare with.

    """
    if not len(dreams) or len(train) < 2 or (held_out is not None and len(held_out) < 2):
        raise ValueError("an audit needs dreams, at least two training images, and at least two held-out images")
    spread, membership = 1.0, None
    spaces = []
    for space in SPACES:
        rows = _rows(model, space, train, batch)
        others = None if held_out is None else _rows(model, space, held_out, batch)
        if space == "features":
            spread = float((rows - rows.mean(0)).pow(2).sum(1).mean().sqrt()) or 1.0
            if labels is not None and others is not None:
                membership = _surer(_confidence(model, rows, labels[0]), _confidence(model, others, labels[1]))
        found = nearest(_rows(model, space, dreams, batch), rows)
        other = nearest(rows, rows, itself=False) if others is None else nearest(others, rows)
        dims = rows.shape[1]
        spaces.append(SpaceAudit(space, _scaled(space, found, dims, spread), _scaled(space, other, dims, spread)))
    reference = "other training images" if held_out is None else "held-out images"
    return Audit(tuple(spaces), reference, membership)


def nearest(points: Tensor, among: Tensor, *, itself: bool = True) -> Nearest:
    """The nearest of ``among`` (M, D) to every point (N, D), by Euclidean distance.

    Args:
        points: (N, D).
        among: (M, D).
        itself: whether a point may be its own nearest; False needs ``points`` to be ``among``.

    """
    best = torch.full((len(points),), math.inf)
    index = torch.zeros(len(points), dtype=torch.int64)
    norms = points.pow(2).sum(1, keepdim=True)
    for start in range(0, len(among), _ROWS):
        part = among[start : start + _ROWS]
        squared = norms + part.pow(2).sum(1) - 2 * points @ part.T
        if not itself:
            inside = torch.arange(start, start + len(part))
            squared[inside, inside - start] = math.inf
        value, place = squared.min(1)
        closer = value < best
        best[closer], index[closer] = value[closer], place[closer] + start
    # The difference of large numbers above is fit to choose by, not to tell small distances.
    return Nearest((points - among[index]).pow(2).sum(1).sqrt(), index)


def _rows(model: Model, space: str, images: Tensor, batch: int) -> Tensor:
    """Images uint8 (N, C, H, W) as points (N, D)."""
    if space == "features":
        parameter = next(model.classifier.parameters())
        normalise = model.preprocessing.normalisation.normalise
        with evaluating(model.classifier):
            found = [
                model.classifier.pooled(normalise(part.to(parameter.device), parameter.dtype)).float().cpu()
                for part in images.split(batch)
            ]
        return torch.cat(found)
    if space == "coarse pixels":
        side = min(_COARSE, *images.shape[2:])
        rows = torch.cat([adaptive_avg_pool2d(part.float(), side).flatten(1) for part in images.split(_ROWS)])
    else:
        rows = images.flatten(1).float()
    if space == "pixels":
        return rows
    rows = rows - rows.mean(1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-6)


def _confidence(model: Model, features: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of the right class, of the images whose class the model knows."""
    known = labels >= 0
    parameter = next(model.classifier.parameters())
    with evaluating(model.classifier):
        logits = model.classifier.head(features[known].to(parameter)).double().cpu()
    return logits.log_softmax(1).gather(1, labels[known, None])[:, 0]


def _surer(first: Tensor, second: Tensor) -> float | None:
    """How often a number of the first is larger than one of the second; ties count half."""
    if not len(first) or not len(second):
        return None
    ordered = second.sort().values
    below, upto = torch.searchsorted(ordered, first), torch.searchsorted(ordered, first, right=True)
    return float((below + upto).double().mean()) / (2 * len(second))


def _scaled(space: str, found: Nearest, dims: int, spread: float) -> Nearest:
    """In the units of `SPACES`."""
    distance = found.distance
    if space == "pixels":
        distance = distance / math.sqrt(dims)
    elif space == "features":
        distance = distance / spread
    else:  # of unit vectors
        distance = distance.pow(2) / 2
    return Nearest(distance, found.index)


# --- what was found, as a table, a figure and numbers ---


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


def _numbers(result: Audit, dreams: int, train: int) -> dict[str, Any]:
    """The distances and the conclusion as plain JSON, with the numbers of dreams and training images."""

    def spread(distances: Tensor) -> dict[str, float]:
        points = {"least": 0.0, "5%": 0.05, "median": 0.5}
        return {name: round(float(distances.quantile(q)), 5) for name, q in points.items()}

    return {
        "counts": {
            "dreams": dreams,
            "training images": train,
            result.reference: len(result.spaces[0].others.distance),
        },
        "spaces": {
            space.space: {
                "unit": SPACES[space.space],
                "dreams": spread(space.dreams.distance),
                result.reference: spread(space.others.distance),
                "dreams_below_5%": space.near,
                "stands_out": space.stands_out,
            }
            for space in result.spaces
        },
        "surer_of_training_images": None if result.membership is None else round(result.membership, 4),
        "conclusion": result.conclusion(),
    }


def write_report(figure: Path, result: Audit, dreams: ImageDataset, train: ImageDataset) -> Path:
    """Write a figure of the nearest pairs, and the numbers as JSON beside it.

    Args:
        figure: NAME.png; the numbers go to NAME.json.
        result: of the audit.
        dreams: of that audit.
        train: the training images of that audit.

    Returns:
        the file of the numbers.

    """
    title = "left to right: a dream; the nearest training image in " + "; in ".join(s.space for s in result.spaces)
    save_grid(figure, _pairs(result, dreams, train), title)
    numbers = figure.with_suffix(".json")
    content = _numbers(result, len(dreams), len(train))
    write_text(numbers, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return numbers


def _pairs(result: Audit, dreams: ImageDataset, train: ImageDataset) -> list[GridRow]:
    """The dreams that are nearest to a training image in any space, each with its nearest images."""
    ranks = torch.stack([space.dreams.distance.argsort().argsort() for space in result.spaces])
    rows = []
    for place in ranks.min(0).values.argsort(stable=True)[:_PAIRS].tolist():
        dream, label = dreams.batch([place])
        found, _ = train.batch([int(space.dreams.index[place]) for space in result.spaces])
        remark = ", ".join(f"{float(space.dreams.distance[place]):.3g}" for space in result.spaces)
        rows.append(GridRow(dreams.classes[int(label)], torch.cat([dream, found]).float() / 255, remark))
    return rows
