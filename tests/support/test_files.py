"""Files that people name are regular ones; ours are there whole or not at all, and a killed writer leaves nothing."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from remix.support.files import IrregularFileError, open_regular, read_limited, write_text, written_whole

WRITER = """
import sys, time
from remix.support.files import written_whole
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


def test_a_regular_file_is_opened_through_links(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to("a")
    with open_regular(tmp_path / "b") as file:
        assert file.read() == b"content"


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "x.jpg")
    with pytest.raises(IrregularFileError, match="a pipe, not a file"):
        open_regular(tmp_path / "x.jpg")


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("x")
        with pytest.raises(IrregularFileError, match="a socket"):
            open_regular("x")


def test_a_link_to_a_device_is_refused(tmp_path):
    (tmp_path / "x.bmp").symlink_to("/dev/zero")
    with pytest.raises(IrregularFileError, match="a device"):
        open_regular(tmp_path / "x.bmp")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        open_regular(tmp_path)


def test_no_more_is_read_than_was_agreed(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_limited(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_limited(tmp_path / "a", 4)
