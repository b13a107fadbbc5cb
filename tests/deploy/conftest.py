from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from remix.cli import main
from remix.data import load
from remix.learning import Model, load_model

STORED = Path(__file__).parent.parent / "learning" / "files" / "model-v2.remix"
NAMES = ("zero", "one", "two", "drei ³")


@pytest.fixture
def model_file(tmp_path) -> Path:
    """A network that knows four digits."""
    return Path(shutil.copy(STORED, tmp_path / "model.remix"))


@pytest.fixture(scope="session")
def model() -> Model:
    return load_model(STORED)


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """Test images of four digits, ten each: CLASS/N.png."""
    root = tmp_path_factory.mktemp("digits")
    test = load("digits").test
    for label, name in enumerate(NAMES):
        (root / name).mkdir()
        rows = (test.labels == label).nonzero()[:10, 0]
        for number, row in enumerate(rows.tolist()):
            Image.fromarray(test.images[row, 0].numpy()).save(root / name / f"{number}.png")
    return root


@pytest.fixture
def remix(capsys):
    """Runs a command; its status and what it printed to standard output and standard error."""

    def run(*words) -> tuple[int, str, str]:
        try:
            main([str(word) for word in words])
            status = 0
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run
