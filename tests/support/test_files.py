import os
import socket

import pytest

from remix.support.files import IrregularFileError, open_regular, read_limited


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
