"""Downloads from servers on this machine: some know ranges, some break off, some refuse."""

import hashlib
import http.server
import os
import socket
import threading
from pathlib import Path

import pytest

from remix.data import DataError, MissingData
from remix.data.download import fetch
from remix.data.registry import Download
from tests.data.samples import largest_file

CONTENT = bytes(i * i % 251 for i in range(1_000_000))
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; ``breaks`` are the numbers of bytes after which answers break off, one for each answer.

    With ``answer``, that is all it says.
    """

    def __init__(self, breaks=(), ranges=True, status=200, answer=""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.breaks, self.ranges, self.fixed_status, self.answer = list(breaks), ranges, status, answer
        self.asked: list[str | None] = []

    def handle_error(self, request, client_address):
        pass

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def download(self, md5=MD5):
        return Download(f"http://127.0.0.1:{self.server_address[1]}/file.bin", "folder/file.bin", md5)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.server.answer:
            self.wfile.write(self.server.answer.encode())
            self.close_connection = True
            return
        if self.server.fixed_status != 200:
            self.send_error(self.server.fixed_status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.breaks:
            self.wfile.write(body[: self.server.breaks.pop(0)])
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(body)


def part_of(root: Path) -> Path:
    return root / "folder" / "file.bin.part"


def test_a_file_arrives_whole_and_progress_is_told(tmp_path):
    seen = []
    with Server() as server:
        file = fetch(server.download(), tmp_path, lambda done, total: seen.append((done, total)))
    assert file == tmp_path / "folder" / "file.bin"
    assert file.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)
    assert not part_of(tmp_path).exists()


def test_a_connection_that_breaks_off_is_continued(tmp_path):
    with Server(breaks=[400_000, 1, 0, 300_000]) as server:
        file = fetch(server.download(), tmp_path, patience=0.001)
    assert file.read_bytes() == CONTENT
    assert server.asked[0] is None
    assert server.asked[1] == "bytes=400000-"
    assert len(server.asked) == 5


def test_the_next_call_continues_the_last(tmp_path):
    with Server(breaks=[400_000, *[0] * 20]) as server:
        with pytest.raises(MissingData, match=r"kept, .* put it at .*folder/file\.bin"):
            fetch(server.download(), tmp_path, patience=0.001)
        assert part_of(tmp_path).read_bytes() == CONTENT[:400_000]
        server.breaks.clear()
        server.asked.clear()
        assert fetch(server.download(), tmp_path).read_bytes() == CONTENT
        assert server.asked == ["bytes=400000-"]


def test_a_server_without_ranges_starts_over(tmp_path):
    with Server(breaks=[400_000], ranges=False) as server:
        assert fetch(server.download(), tmp_path, patience=0.001).read_bytes() == CONTENT


def test_a_part_that_is_complete_only_needs_its_name(tmp_path):
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(CONTENT)
    with Server() as server:
        assert fetch(server.download(), tmp_path).read_bytes() == CONTENT


def test_a_wrong_beginning_is_found_out_and_not_continued_again(tmp_path):
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(b"x" * 1000)
    with Server() as server:
        with pytest.raises(DataError, match="not the official file"):
            fetch(server.download(), tmp_path)
        assert not part_of(tmp_path).exists()
        assert fetch(server.download(), tmp_path).read_bytes() == CONTENT


def test_a_file_that_is_there_is_checked_and_not_fetched(tmp_path):
    with Server() as server:
        file = fetch(server.download(), tmp_path)
        server.asked.clear()
        assert fetch(server.download(), tmp_path) == file
        file.write_bytes(CONTENT[:-1])
        with pytest.raises(DataError, match=r"MD5 .* Remove it"):
            fetch(server.download(), tmp_path)
        assert server.asked == []


def test_a_refusal_of_the_server_is_not_repeated(tmp_path):
    with Server(status=404) as server, pytest.raises(MissingData, match="the server answers 404"):
        fetch(server.download(), tmp_path)
    assert len(server.asked) == 1


def test_without_a_connection_it_says_what_to_put_where(tmp_path):
    with Server() as server:
        download = server.download()
    with pytest.raises(MissingData, match=r"no connection.*Fetch file\.bin elsewhere and put it at"):
        fetch(download, tmp_path, patience=0.001)
    assert list((tmp_path / "folder").iterdir()) == []


def test_only_addresses_of_the_web_are_fetched(tmp_path):
    with pytest.raises(DataError, match="only http"):
        fetch(Download("file:///etc/passwd", "a", ""), tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").write_text("in the way")
    with Server() as server, pytest.raises(DataError, match="cannot write to"):
        fetch(server.download(), tmp_path)


def test_a_full_disk_is_a_sentence_and_the_next_call_goes_on(tmp_path):
    with Server() as server:
        with largest_file(300_000), pytest.raises(DataError, match=r"file\.bin\.part: File too large\. Make room and"):
            fetch(server.download(), tmp_path)
        assert fetch(server.download(), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["file.bin.part", "file.bin"])
def test_a_pipe_in_the_way(tmp_path, name):
    part_of(tmp_path).parent.mkdir()
    os.mkfifo(tmp_path / "folder" / name)
    with Server() as server, pytest.raises(DataError, match=rf"{name} is in the way, and not a file; remove it"):
        fetch(server.download(), tmp_path)


@pytest.mark.parametrize(
    "address",
    [
        "http://[broken",
        "http://host:port/",
        "http://" + "x" * 70 + ".example/",
        "ftp://localhost/x",
        "file:///etc/passwd",
    ],
)
def test_a_redirection_to_nowhere_is_one_sentence(tmp_path, address):
    answer = f"HTTP/1.1 302 Found\r\nLocation: {address}\r\nContent-Length: 0\r\n\r\n"
    wanted = rf"cannot download .*{'sends us to' if 'ftp' in address else ''}.*Fetch file\.bin elsewhere and put it at"
    with Server(answer=answer) as server, pytest.raises(MissingData, match=wanted):
        fetch(server.download(), tmp_path, patience=0.001)
    assert list((tmp_path / "folder").iterdir()) == []


def test_what_the_server_says_reaches_the_terminal_escaped(tmp_path):
    answer = "HTTP/1.1 404 \x1b[31mgone\r\nContent-Length: 0\r\n\r\n"
    with Server(answer=answer) as server, pytest.raises(MissingData, match=r"answers 404 \\x1b\[31mgone\)"):
        fetch(server.download(), tmp_path)


@pytest.mark.parametrize(
    "head",
    ["", "Content-Length: 999999999\r\n", f"Content-Length: {'9' * 5000}\r\n", "Transfer-Encoding: chunked\r\n"],
    ids=["endless", "long", "absurd", "negative chunks"],
)
def test_a_server_cannot_fill_the_disk(tmp_path, head, monkeypatch):
    monkeypatch.setattr("remix.data.download._LARGEST", 500_000)
    body = "-1\r\n" * ("chunked" in head) + "x" * 1_000_000
    with (
        Server(answer=f"HTTP/1.1 200 OK\r\n{head}\r\n{body}") as server,
        pytest.raises(MissingData, match=r"\(the server's answer makes no sense: .*\)\. Fetch file\.bin"),
    ):
        fetch(server.download(), tmp_path, patience=0.001)
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_server_that_begins_anew_and_breaks_off_is_given_up(tmp_path):
    """Answers of unequal length are no progress."""
    breaks = [400_000, 300_000] * 20
    with Server(breaks, ranges=False) as server, pytest.raises(MissingData, match="cannot download"):
        fetch(server.download(), tmp_path, patience=0.001)
    assert len(server.asked) == 3
