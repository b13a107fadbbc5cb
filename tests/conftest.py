"""Shared by all tests: reproducible randomness, one thread per worker, signals that act, the folder of real data."""

import os
import signal
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # before numpy and torch start their thread pools
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

settings.register_profile("remix", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("remix")

# In the background of a shell or under nohup signals are ignored, and what a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ending in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(ending, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


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
