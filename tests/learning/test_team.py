"""Two processes learn what one does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]

RUN = """
import json, sys
import torch
from lightning_fabric import Fabric
from tiny import tiny_engine, tiny_stream
from remix.learning.trainer import Monitor
from remix.learning.team import Team

def main(devices):
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto")
    fabric.launch()
    losses = []
    class Recorder(Monitor):
        def epoch(self, report):
            losses.append([report.stage, dict(report.terms)])
    stream = tiny_stream(25)
    engine = tiny_engine("remix", stream, team=Team(fabric))
    engine.monitor = Recorder()
    for index in range(2):
        engine.learn(stream[index])
    if engine.team.first:
        print(json.dumps({"losses": losses, "right": engine.evaluate_tasks([stream.test(0), stream.test(1)])}))

if __name__ == "__main__":
    main(int(sys.argv[1]))
"""


def run(devices: int, folder: Path) -> dict:  # type: ignore[type-arg]
    script = folder / "run.py"
    script.write_text(RUN)
    paths = [str(TESTS / "methods"), *sys.path]
    done = subprocess.run(
        [sys.executable, str(script), str(devices)],
        env={"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    one, two = run(1, tmp_path), run(2, tmp_path)
    assert [stage for stage, _ in one["losses"]] == [stage for stage, _ in two["losses"]]
    for (stage, mine), (_, theirs) in zip(one["losses"], two["losses"], strict=True):
        assert mine == pytest.approx(theirs, rel=2e-3, abs=2e-4), stage
    assert two["right"][1] == [20, 20]
