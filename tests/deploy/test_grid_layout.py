"""A saved picture knows what stands where in it."""

import numpy as np
import pytest
import torch
from PIL import Image

from remix.deploy.grids import GridRow, grid_layout, save_grid


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
