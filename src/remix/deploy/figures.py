"""Pictures: many small images with a label for every row, and the terms of an objective over the steps of a run."""

from __future__ import annotations

import functools
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from remix.support.documents import parse_json
from remix.support.files import open_regular, written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "GridLayout",
    "GridRow",
    "History",
    "RowLayout",
    "grid_layout",
    "image_grid",
    "open_picture",
    "save_grid",
    "save_terms",
    "terms_figure",
]

_WIDEST = 1800  # pixels for the images of one line
_LARGEST, _SMALLEST = 224, 64  # side of an image on the page
_COLUMNS = 16
_GAP, _MARGIN, _BETWEEN = 4, 20, 18
_LABEL_WIDTH = 260
_INK, _GREY = (25, 25, 25), (115, 115, 115)
_NOTE = "remix-grid"  # name of the text in a PNG that says what stands where


@dataclass(frozen=True, eq=False)
class GridRow:
    """Images (n, C, H, W) within 0..1 that belong together, their name, and a remark that stands below it."""

    name: str
    images: Tensor
    remark: str = ""


def save_grid(path: str | Path, rows: Sequence[GridRow], title: str = "") -> None:
    """Write `image_grid` as PNG, atomically."""
    picture = image_grid(rows, title)
    note = PngInfo()
    note.add_text(_NOTE, json.dumps(picture.info[_NOTE]))
    with written_whole(path) as file:
        picture.save(file, format="PNG", pnginfo=note)


@dataclass(frozen=True)
class RowLayout:
    """Where the images of a row stand in a picture: its name and their boxes (left, top, right, bottom)."""

    name: str
    boxes: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class GridLayout:
    """What stands where in a saved picture: the rows, and the width and height in pixels that an image has itself."""

    size: tuple[int, int]
    rows: tuple[RowLayout, ...]


def open_picture(path: str | Path) -> Image.Image:
    """A picture that `save_grid` wrote, with what it says of its layout.

    Raises:
        OSError: if it is none that can be read, also for pipes and for pictures of a hundred million pixels.

    """
    try:
        with open_regular(path) as file, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(file, formats=["PNG"])
            picture.load()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, SyntaxError, ValueError) as error:
        raise OSError(str(error)) from error
    return picture


def grid_layout(picture: Image.Image) -> GridLayout | None:
    """The layout that `save_grid` wrote into a picture; None if there is none, or none that is valid."""
    try:
        note = parse_json(picture.info[_NOTE])
        rows = tuple(
            RowLayout(str(row["name"]), tuple(_box(box, picture) for box in row["boxes"])) for row in note["rows"]
        )
        width, height = (int(side) for side in note["size"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return GridLayout((width, height), rows) if width > 0 and height > 0 else None


def _box(box: Sequence[int], picture: Image.Image) -> tuple[int, int, int, int]:
    left, top, right, bottom = (int(edge) for edge in box)
    if not (0 <= left < right <= picture.width and 0 <= top < bottom <= picture.height):
        raise ValueError(f"the box {box} is not within the picture")
    return left, top, right, bottom


def image_grid(rows: Sequence[GridRow], title: str = "") -> Image.Image:
    """One row of images per entry, names on the left; a row of more than 16 images takes several lines.

    Small images are enlarged by a whole factor, so that their pixels stay visible as they are.

    Raises:
        ValueError: if there is no image at all, or images differ in shape.

    """
    shapes = {tuple(row.images.shape[1:]) for row in rows if len(row.images)}
    if len(shapes) != 1:
        raise ValueError(f"a grid needs images of one shape, got {sorted(shapes) or 'none'}")
    _, height, width = shapes.pop()
    most = max(len(row.images) for row in rows)
    columns = -(-most // -(-most // _COLUMNS))  # lines of nearly equal length
    size = _cell(height, width, columns)
    heading = _text_height(title, 15)
    label_width = _label_width(rows)
    bands = [max(_band(row, columns, size), _label_height(row)) for row in rows]
    page = Image.new(
        "RGB",
        (
            max(2 * _MARGIN + label_width + columns * (size[0] + _GAP) - _GAP, 2 * _MARGIN + _width(title, 15)),
            2 * _MARGIN + heading + sum(bands) + _BETWEEN * (len(rows) - 1),
        ),
        "white",
    )
    draw = ImageDraw.Draw(page)
    draw.text((_MARGIN, _MARGIN - 6), title, _GREY, _font(15))
    top = _MARGIN + heading
    noted = []
    for row, band in zip(rows, bands, strict=True):
        _draw_label(draw, row, top, min(band, size[1]))
        boxes = []
        for i, image in enumerate(row.images):
            line, column = divmod(i, columns)
            place = (_MARGIN + label_width + column * (size[0] + _GAP), top + line * (size[1] + _GAP))
            page.paste(_picture(image, size), place)
            boxes.append([*place, place[0] + size[0], place[1] + size[1]])
        noted.append({"name": row.name, "boxes": boxes})
        top += band + _BETWEEN
    page.info[_NOTE] = {"size": [width, height], "rows": noted}
    return page


def _cell(height: int, width: int, columns: int) -> tuple[int, int]:
    """Width and height of an image on the page."""
    longest = max(height, width)
    most = min(_LARGEST, _WIDEST // columns)
    if longest >= _SMALLEST:
        factor = min(1.0, most / longest)
    else:
        factor = float(max(1, min(-(-96 // longest), most // longest)))
    return max(1, round(width * factor)), max(1, round(height * factor))


def _band(row: GridRow, columns: int, size: tuple[int, int]) -> int:
    lines = max(1, -(-len(row.images) // columns))
    return lines * (size[1] + _GAP) - _GAP


def _picture(image: Tensor, size: tuple[int, int]) -> Image.Image:
    numbers = (image.detach().float().cpu().clamp(0, 1) * 255).round().byte().numpy()
    if len(numbers) == 3:
        picture = Image.fromarray(np.ascontiguousarray(numbers.transpose(1, 2, 0)), "RGB")
    else:  # of other numbers of channels the first is shown
        picture = Image.fromarray(numbers[0], "L").convert("RGB")
    grows = size[0] >= picture.width
    return picture.resize(size, Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS)


# --- words ---


def _draw_label(draw: ImageDraw.ImageDraw, row: GridRow, top: int, height: int) -> None:
    start = top + max(0, (height - _label_height(row)) // 2)
    draw.text((_MARGIN, start), _shortened(row.name, 19, bold=True), _INK, _font(19, bold=True))
    draw.text((_MARGIN, start + 26), row.remark, _GREY, _font(14))


def _label_width(rows: Sequence[GridRow]) -> int:
    names = [_width(_shortened(row.name, 19, bold=True), 19, bold=True) for row in rows]
    remarks = [_width(row.remark, 14) for row in rows]
    return max([*names, *remarks]) + 18


def _label_height(row: GridRow) -> int:
    return 46 if row.remark else 26


def _text_height(text: str, size: int) -> int:
    return size + 16 if text else 0


def _width(text: str, size: int, bold: bool = False) -> int:
    return int(_font(size, bold).getlength(text)) + 1


def _shortened(text: str, size: int, bold: bool = False) -> str:
    if _width(text, size, bold) <= _LABEL_WIDTH:
        return text
    while text and _width(text + "…", size, bold) > _LABEL_WIDTH:
        text = text[:-1]
    return text + "…"


@functools.cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib: it is always there and knows most alphabets."""
    from matplotlib import get_data_path

    return ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", f"DejaVuSans{'-Bold' * bold}.ttf")), size)


# --- terms over steps ---

History = Mapping[str, Mapping[str, Sequence[float]]]
"""By phase, then by term, the values in every step."""

_COLOURS = {
    "features": "#4477aa",
    "labels": "#4477aa",
    "confidence": "#4477aa",
    "statistics": "#ee6677",
    "prior": "#228833",
    "input": "#ccbb44",
    "balance": "#ccbb44",
    "variation": "#66ccee",
    "smoothness": "#66ccee",
    "norm": "#aa3377",
    "loss": "#333333",
}
_MOST_PHASE_NAMES = 26


def save_terms(path: str | Path, history: History, title: str = "") -> None:
    """Write `terms_figure` as PNG, atomically."""
    figure = terms_figure(history, title)
    with written_whole(path) as file:
        figure.savefig(file, format="png", dpi=120)


def terms_figure(history: History, title: str = "") -> Figure:
    """Every term on a logarithmic scale; those that fall to zero or below (log-likelihoods) on a linear one beneath.

    Raises:
        ValueError: if there is no step at all.

    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    phases = [(name, terms) for name, terms in history.items() if _steps(terms)]
    if not phases:
        raise ValueError("there are no steps to show yet")
    names = list(dict.fromkeys(name for _, terms in phases for name in terms))
    signed = [name for name in names if any(value <= 0 for _, terms in phases for value in terms.get(name, ()))]
    positive = [name for name in names if name not in signed]
    figure = Figure(figsize=(10, 7 if positive and signed else 5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [(group, scale, height) for group, scale, height in ((positive, "log", 2), (signed, "linear", 1)) if group]
    heights = [height for _, _, height in panels]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (group, scale, _) in zip(axes, panels, strict=True):
        _draw(ax, phases, group)
        ax.set_yscale(scale)
        ax.yaxis.set_minor_locator(NullLocator())
        ax.grid(axis="y", color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.set_ylabel("value (unweighted)" if scale == "log" else "value")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes[-1].set_xlabel("step")
    _name_phases(axes[0], phases)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color="#555555")
    return figure


def _draw(ax: Any, phases: Sequence[tuple[str, Mapping[str, Sequence[float]]]], group: Sequence[str]) -> None:
    named: set[str] = set()
    start = 0
    for _, terms in phases:
        steps = _steps(terms)
        for name in group:
            if name in terms:
                style: dict[str, Any] = {"linewidth": 1.6, "label": name}
                if name == "loss":
                    style = {"linewidth": 1.0, "label": "objective", "linestyle": (0, (4, 2))}
                if name in named:
                    style["label"] = None
                if steps == 1:
                    style["marker"] = "."
                values = [value if math.isfinite(value) else math.nan for value in terms[name]]
                ax.plot(range(start, start + len(values)), values, color=_COLOURS.get(name), alpha=0.9, **style)
                named.add(name)
        start += steps
        ax.axvline(start - 0.5, color="#cccccc", linewidth=0.7, zorder=0)
    ax.set_xlim(-0.5, start - 0.5)


def _name_phases(ax: Any, phases: Sequence[tuple[str, Mapping[str, Sequence[float]]]]) -> None:
    if len(phases) == 1:
        return
    every = -(-len(phases) // _MOST_PHASE_NAMES)
    start = 0
    total = sum(_steps(terms) for _, terms in phases)
    letters = 130 / total  # that fit into the width of the axes, per step
    upright = any(len(name) > letters * _steps(terms) for name, terms in phases)
    for number, (name, terms) in enumerate(phases):
        steps = _steps(terms)
        if number % every == 0:
            ax.annotate(
                name.removeprefix("chunk ").replace(": ", "  "),
                (start + steps / 2, 1.0),
                (0, 4),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90 if upright else 0,
                fontsize=8,
                color="#777777",
            )
        start += steps


def _steps(terms: Mapping[str, Sequence[float]]) -> int:
    return max((len(values) for values in terms.values()), default=0)
