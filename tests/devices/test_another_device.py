"""Everything runs on a device that is not the processor: `cases.py`, in a process that has such a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_everything_runs_on_another_device():
    """In a process of its own: once torch knows another device, it knows it for good."""
    cases = Path(__file__).with_name("cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(cases)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, env={**environment, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
