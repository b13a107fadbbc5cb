"""`remix run --devices 2`, as it is typed."""

import os
import subprocess
import sys

import pytest
import torch
from lightning_fabric import Fabric
from tiny import tiny_engine, tiny_stream
from tiny_runs import COMMON, SETTINGS

from remix.learning.team import Team


@pytest.mark.slow
def test_half_precision_runs_on_two_processes(tmp_path):
    words = ["run", "digits", "--devices", "2", "--precision", "bf16-mixed", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "remix", *words, "--method", "finetune", "--set", *COMMON]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *SETTINGS["finetune"]], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "run" / "matrix.csv").is_file()


def test_classes_that_half_precision_cannot_tell_apart_are_told_apart():
    """Logits that differ by less than bfloat16 can say: ties would all go to the older class."""
    stream = tiny_stream(5)
    engine = tiny_engine("finetune", stream, team=Team(Fabric(accelerator="cpu", precision="bf16-mixed")))
    head = engine.student.head
    head.grow(["0", "1"])
    with torch.no_grad():
        weight = head.classifier(-1).weight
        weight.copy_(torch.tensor([[1.0], [1.0 + 2**-10]]).expand_as(weight))
    data = stream.test(0)
    right, count = engine.evaluate(data)
    assert count > 0
    assert right == int((data.labels == 1).sum())


@pytest.mark.slow
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
        command = [sys.executable, "-m", "remix", *words, "--set", *COMMON, *SETTINGS["finetune"]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = ((tmp_path / str(devices) / "matrix.csv").read_text() for devices in (1, 2))
    assert one == two
    assert not any((tmp_path / "2").rglob("*.tmp"))


def test_more_processes_than_a_machine_can_bear_are_refused(refusal):
    assert "devices: 100000 processes" in refusal("run", "digits", "--devices", "100000", "--out", "nowhere")
