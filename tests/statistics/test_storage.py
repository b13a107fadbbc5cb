from __future__ import annotations

import json
import os
import pickle
import struct

import pytest
import torch
from safetensors.torch import save_file

from remix.statistics import DamagedFileError, StoredTensor, read_file, read_header, storage, write_file


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "some.remix"
    write_file(
        file, "memory", 1, {"a": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0)}, {"names": ["é", "b"]}
    )
    return file


def rewritten(path, change) -> None:
    """Change the header's JSON and give it a right checksum again, as an attacker would."""
    tensors = {"a": torch.arange(6.0).reshape(2, 3)}
    write_file(path, "memory", 1, tensors, {})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    outer = json.loads(data[8 : 8 + length])
    text = change(outer["__metadata__"][storage._HEADER])
    digest = storage.hashlib.sha256(text.encode()).hexdigest()
    save_file(tensors, path, {storage._HEADER: text, storage._CHECKSUM: digest})


def test_tensors_and_content_come_back(path):
    tensors, content = read_file(path, "memory", 1)
    assert torch.equal(tensors["a"], torch.arange(6.0).reshape(2, 3))
    assert tensors["empty"].shape == (0,)
    assert content == {"names": ["é", "b"]}


def test_other_kinds_and_versions_are_told(path):
    with pytest.raises(DamagedFileError, match="holds 'memory', expected 'checkpoint'"):
        read_file(path, "checkpoint", 1)
    with pytest.raises(DamagedFileError, match="format version 1 of 'memory', this remix reads version 2"):
        read_file(path, "memory", 2)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        read_file(tmp_path / "nothing", "memory", 1)


def test_any_changed_byte_is_noticed(path):
    data = path.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(DamagedFileError):
            read_file(path, "memory", 1)


def test_any_truncation_is_noticed(path):
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedFileError, match="damaged"):
            read_file(path, "memory", 1)


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        pickle.dumps({"a": 1}),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 50_000_000) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
    ],
)
def test_foreign_and_hostile_files_are_told_in_one_sentence(tmp_path, content):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"is no memory file|nested too deeply") as caught:
        read_file(file, "memory", 1)
    assert "\n" not in str(caught.value)


def test_another_programs_safetensors_file_is_told(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(DamagedFileError, match="not one that remix wrote"):
        read_file(tmp_path / "weights.safetensors", "memory", 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "[" * 100_000,
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"kind": "memory"', '"kind": {"a": 1}'),
        lambda text: text.replace('"version": 1', '"version": "1"'),
        lambda text: json.dumps(json.loads(text) | {"checksums": {}}),
        lambda text: json.dumps(json.loads(text) | {"checksums": ["a"]}),
        lambda text: json.dumps(json.loads(text) | {"checksums": {"a": 5}}),
    ],
)
def test_a_forged_header_is_refused(path, change):
    rewritten(path, change)
    with pytest.raises(DamagedFileError):
        read_file(path, "memory", 1)


def test_a_name_that_is_there_twice_is_told(path):
    rewritten(path, lambda text: text.replace('"kind"', '"kind": 1, "kind"', 1))
    with pytest.raises(DamagedFileError, match="its header is ambiguous: it has 'kind' twice"):
        read_file(path, "memory", 1)
    entry = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    header = f"{{{entry},{entry}}}".encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(DamagedFileError, match="its header is ambiguous: it has 'a' twice"):
        read_file(path, "memory", 1)


def test_the_header_alone(path):
    header = read_header(path, "memory", 1)
    assert header.tensors == {"a": StoredTensor("F32", (2, 3), 24), "empty": StoredTensor("F32", (0,), 0)}
    assert (header.version, header.content) == (1, {"names": ["é", "b"]})
    assert len(header.checksum) == 64


def test_versions_before_the_present_one_are_read_where_the_reader_says_so(path):
    assert read_file(path, "memory", 3, oldest=1)[1] == {"names": ["é", "b"]}
    with pytest.raises(DamagedFileError, match="reads versions 2 to 3"):
        read_file(path, "memory", 3, oldest=2)


def test_a_header_that_is_too_long_is_not_written_and_not_read(path):
    with pytest.raises(ValueError, match="at most 16,777,216"):
        write_file(path, "memory", 1, {}, "x" * (17 << 20))
    assert read_file(path, "memory", 1)[1] == {"names": ["é", "b"]}
    path.write_bytes(struct.pack("<Q", 20 << 20) + b" " * (20 << 20))
    with pytest.raises(DamagedFileError, match="is no memory file"):
        read_file(path, "memory", 1)


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(path, monkeypatch):
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_file(path, "memory", 1, {"a": torch.ones(3)}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_file_is_a_plain_safetensors_file_in_the_usual_permissions(path):
    from safetensors.torch import load_file

    assert torch.equal(load_file(path)["a"], torch.arange(6.0).reshape(2, 3))
    other = path.with_name("other")
    other.write_bytes(b"")
    assert path.stat().st_mode == other.stat().st_mode


def test_equal_contents_are_equal_bytes(path):
    tensors = {"b": torch.ones(3), "a": torch.zeros(2, dtype=torch.int64), "c": torch.zeros(0)}
    written = set()
    for names in [("a", "b", "c"), ("c", "b", "a")] * 8:
        write_file(path, "memory", 1, {name: tensors[name] for name in names}, {"x": 1, "y": [2]})
        written.add(path.read_bytes())
    assert len(written) == 1
    assert int.from_bytes(written.pop()[:8], "little") % 8 == 0


def test_half_of_a_surrogate_pair_in_a_header_is_told(path):
    rewritten(path, lambda text: text.replace('"content": {}', '"content": "\\ud800"'))
    with pytest.raises(DamagedFileError, match="half of a surrogate pair"):
        read_file(path, "memory", 1)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is a pipe, not a file"):
        read_file(tmp_path / "pipe", "memory", 1)
