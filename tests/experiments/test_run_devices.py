"""`remix run --devices 2`, as it is typed."""

import os
import subprocess
import sys

from tiny_runs import COMMON, SETTINGS


def test_two_processes_end_with_the_result_of_one(tmp_path):
    for devices in (1, 2):
        words = [
            "run",
            "digits",
            "--method",
            "finetune",
            "--devices",
            str(devices),
            "--out",
            str(tmp_path / str(devices)),
        ]
        command = [sys.executable, "-m", "remix.cli", *words, "--set", *COMMON, *SETTINGS["finetune"]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = ((tmp_path / str(devices) / "matrix.csv").read_text() for devices in (1, 2))
    assert one == two
    assert not any((tmp_path / "2").rglob("*.tmp"))
