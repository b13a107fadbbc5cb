"""docs/tutorial.md, followed word for word."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documented_commands import commands_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
TEXT = (ROOT / "docs" / "tutorial.md").read_text()


def test_every_command_of_the_tutorial_runs(tmp_path):
    """In one folder, in order, in a process of its own each; commands that learn are shortened, nothing else."""
    blocks = re.findall(r"^```(sh|py)\n(.*?)^```", TEXT, re.M | re.S)
    assert [kind for kind, _ in blocks].count("sh") >= 6
    for kind, block in blocks:
        if kind == "py":
            _run([sys.executable, "-c", block], tmp_path)
            continue
        for command in commands_of("docs/tutorial.md", f"```sh\n{block}```"):
            if command.marked:
                continue
            words = shlex.split(command.text)
            if words[0] == "remix":
                words = [sys.executable, "-m", "remix", *words[1:]]
                words += ["--epochs", "2", "--samples", "8"] if words[3] == "learn" else []
                words += ["--steps", "4"] if words[3] == "dream" else []
            elif words[0] == "python":
                words[0] = sys.executable
            _run(words, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.remix")) == [
        "forgetful.remix", "four.remix", "one.remix", "three.remix", "two.remix",
    ]  # fmt: skip
    assert (tmp_path / "dreams.png").stat().st_size > 1000


def _run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
