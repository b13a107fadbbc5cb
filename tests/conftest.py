"""Shared by all tests: reproducible randomness, one thread per worker, signals that act, real data, a stored model."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if "PYTEST_XDIST_WORKER" in os.environ:  # before numpy and torch start their thread pools
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from remix.learning import Model

STORED = Path(__file__).parent / "learning" / "files" / "model-v2.remix"
STORED_CLASSES = ("zero", "one", "two", "drei ³")

settings.register_profile("remix", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("remix")

# In the background of a shell or under nohup signals are ignored, and what a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ending in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(ending, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come last, all others stay in their order: most mistakes are told early."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same state of torch's global generator, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets (cifar-100-binary/, imagenette/, weights/), named by REMIX_DATA."""
    named = os.environ.get("REMIX_DATA")
    if not named:
        pytest.skip("needs real data: set REMIX_DATA to a folder with cifar-100-binary/, imagenette/ and weights/")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"REMIX_DATA={named} is not a folder")
    return folder


@pytest.fixture
def refusal(capsys):
    """The sentence with which a command ends when it refuses."""

    from remix.cli import main

    def run(*arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        assert stopped.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.fixture
def model_file(tmp_path) -> Path:
    """A network that knows four digits."""
    return Path(shutil.copy(STORED, tmp_path / "model.remix"))


@pytest.fixture(scope="session")
def model() -> Model:
    """The same, opened."""
    from remix.learning import load_model

    return load_model(STORED)


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """Test images of four digits, ten each: CLASS/N.png."""
    from PIL import Image

    from remix.data import load

    root = tmp_path_factory.mktemp("digits")
    test = load("digits").test
    for label, name in enumerate(STORED_CLASSES):
        (root / name).mkdir()
        rows = (test.labels == label).nonzero()[:10, 0]
        for number, row in enumerate(rows.tolist()):
            Image.fromarray(test.images[row, 0].numpy()).save(root / name / f"{number}.png")
    return root


@pytest.fixture
def mislabelled(digits, tmp_path) -> Path:
    """Ten zeros; ten ones and three zeros that are called ones; two twos."""
    root = tmp_path / "test"
    shutil.copytree(digits / "zero", root / "zero")
    shutil.copytree(digits / "one", root / "one")
    for k in range(3):
        shutil.copy(digits / "zero" / f"{k}.png", root / "one" / f"zero-{k}.png")
    (root / "two").mkdir()
    for k in range(2):
        shutil.copy(digits / "two" / f"{k}.png", root / "two")
    return root
