"""Files are there whole or not at all, and what a killed writer leaves goes with the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remix.support.atomic import write_text, written_whole
from remix.support.files import IrregularFileError

WRITER = """
import sys, time
from remix.support.atomic import written_whole
with written_whole(sys.argv[1]) as file:
    file.write(b"theirs")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def writer():
    """Starts a process that stops in the middle of writing a file, until a line comes."""
    started = []

    def start(path: Path) -> subprocess.Popen[str]:
        one = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(one)
        assert one.stdout.readline() == "writing\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_what_a_killed_writer_left_goes_with_the_next_one(writer, tmp_path):
    for _ in range(2):
        one = writer(tmp_path / "model.remix")
        one.send_signal(signal.SIGKILL)
        one.wait()
    other = writer(tmp_path / "other.remix")
    other.kill()
    other.wait()
    assert len(os.listdir(tmp_path)) == 2  # the second writer has removed what the first one left
    write_text(tmp_path / "model.remix", "ours")
    left = sorted(os.listdir(tmp_path))
    assert left[1:] == ["model.remix"]
    assert left[0].startswith(".other.remix.")


def test_the_file_of_a_living_writer_is_left_alone(writer, tmp_path):
    one = writer(tmp_path / "model.remix")
    write_text(tmp_path / "model.remix", "ours")
    assert len(os.listdir(tmp_path)) == 2
    one.communicate("go on\n", timeout=60)
    assert one.returncode == 0
    assert os.listdir(tmp_path) == ["model.remix"]
    assert (tmp_path / "model.remix").read_text() == "theirs"


def test_two_writers_of_one_process_do_not_disturb_each_other(tmp_path):
    with written_whole(tmp_path / "x") as first:
        first.write(b"first")
        with written_whole(tmp_path / "x") as second:
            second.write(b"second")
        assert (tmp_path / "x").read_bytes() == b"second"
    assert (tmp_path / "x").read_bytes() == b"first"


def test_a_pipe_is_not_exchanged_for_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / ".x.01234567.tmp")  # called as what a writer leaves
    with pytest.raises(IrregularFileError, match="is a pipe, not a file"):
        write_text(tmp_path / "pipe", "text")
    write_text(tmp_path / "x", "text")
    assert (tmp_path / "x").read_text() == "text"
