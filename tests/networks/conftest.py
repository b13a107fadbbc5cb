from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def data_dir() -> Path:
    """The folder with real data and weights, where a test needs them."""
    folder = os.environ.get("REMIX_DATA")
    if not folder:
        pytest.skip("set REMIX_DATA to the folder that holds imagenette/ and weights/")
    return Path(folder)
