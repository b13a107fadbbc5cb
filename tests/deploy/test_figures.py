"""Grids and plots: what is on them, and where; a saved picture knows it too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from remix.deploy.figures import GridRow, grid_layout, image_grid, save_grid, save_terms, terms_figure


def test_small_images_keep_their_pixels():
    images = torch.zeros(2, 3, 8, 8)
    images[1, 0, 3, 5] = 1.0
    page = np.asarray(image_grid([GridRow("dot", images)]))
    red = (page == (255, 0, 0)).all(-1)
    rows, columns = red.any(1).nonzero()[0], red.any(0).nonzero()[0]
    side = rows[-1] - rows[0] + 1
    assert side == columns[-1] - columns[0] + 1 == 12  # 8 pixels on 96
    assert red.sum() == side**2


def test_values_beyond_the_range_are_cut_off():
    page = np.asarray(
        image_grid([GridRow("x", torch.full((1, 1, 8, 8), 7.0)), GridRow("y", torch.full((1, 1, 8, 8), -7.0))])
    )
    assert page.max() == 255
    assert (page == 0).all(-1).sum() >= 96**2


def test_long_rows_break_and_large_images_shrink():
    page = image_grid([GridRow("many", torch.rand(40, 3, 224, 224)), GridRow("one", torch.rand(1, 3, 224, 224))])
    assert page.width < 2300
    assert page.height < 3 * 224 + 300


@pytest.mark.parametrize("name", ["Ωmega Ünï", "x" * 300, "<b>&amp;", "日本"])
def test_any_name(name, tmp_path):
    save_grid(tmp_path / "grid.png", [GridRow(name, torch.rand(2, 1, 8, 8), "1 of 2 recognised")], "title")
    assert image_grid([GridRow(name, torch.rand(2, 1, 8, 8))]).width < 700
    assert [path.name for path in tmp_path.iterdir()] == ["grid.png"]


def test_a_class_without_images_has_a_row_too():
    with_empty = image_grid([GridRow("some", torch.rand(3, 1, 8, 8)), GridRow("none", torch.rand(0, 1, 8, 8))])
    assert with_empty.height > image_grid([GridRow("some", torch.rand(3, 1, 8, 8))]).height
    with pytest.raises(ValueError, match="needs images of one shape"):
        image_grid([GridRow("none", torch.rand(0, 1, 8, 8))])


def history(prior):
    return {
        "block": {"features": [3.0, 2.0], "prior": prior, "loss": [4.0, 3.0]},
        "refine": {"features": [1.0], "loss": [1.0]},
    }


def test_terms_are_on_a_logarithmic_scale_one_phase_after_another(tmp_path):
    (ax,) = terms_figure(history([0.5, 0.25])).axes
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["features", "prior", "objective"]
    assert [text.get_text() for text in ax.texts] == ["block", "refine"]
    drawn = [list(line.get_xdata()) for line in ax.lines if line.get_color() == "#4477aa"]
    assert drawn == [[0, 1], [2]]
    save_terms(tmp_path / "terms.png", history([0.5, 0.25]), "title")
    assert (tmp_path / "terms.png").stat().st_size > 1000


def test_terms_that_fall_below_zero_have_a_scale_of_their_own():
    above, below = terms_figure(history([0.5, -0.25])).axes
    assert (above.get_yscale(), below.get_yscale()) == ("log", "linear")
    assert [text.get_text() for text in below.get_legend().get_texts()] == ["prior"]


def test_nothing_to_show():
    with pytest.raises(ValueError, match="no steps"):
        terms_figure({"block": {}})


def test_the_images_can_be_cut_out_again(tmp_path):
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    save_grid(tmp_path / "grid.png", [GridRow("a", images[:1]), GridRow("<b>", images[1:])], "title")
    picture = Image.open(tmp_path / "grid.png")
    layout = grid_layout(picture)
    assert layout is not None
    assert layout.size == (8, 8)
    assert [(row.name, len(row.boxes)) for row in layout.rows] == [("a", 1), ("<b>", 2)]
    found = [picture.crop(box).resize((8, 8), Image.Resampling.NEAREST) for row in layout.rows for box in row.boxes]
    expected = (images * 255).round().byte().numpy().transpose(0, 2, 3, 1)
    assert all(np.array_equal(np.asarray(image), wanted) for image, wanted in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    "note",
    [
        "",
        "{",
        "[]",
        '{"size": [8, 8], "rows": [{"name": "a", "boxes": [[0, 0, 9999, 5]]}]}',
        '{"size": [0, 8], "rows": []}',
    ],
)
def test_a_layout_that_is_not_valid_is_none(note):
    picture = Image.new("RGB", (50, 50))
    picture.info["remix-grid"] = note
    assert grid_layout(picture) is None
    assert grid_layout(Image.new("RGB", (50, 50))) is None
