"""The reader of pickles that executes nothing."""

import os
import pickle
import pickletools
from contextlib import suppress

import numpy as np
import pytest

from remix.data import DataError
from remix.data.pickled_arrays import read_pickled


def write(path, value, protocol=2):
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.uint8).reshape(3, 4)),
        np.arange(6, dtype=">i4"),
        np.linspace(0, 1, 5),
        np.arange(2**17, dtype=np.uint8),
    ],
    ids=["bytes", "fortran", "big-endian", "double", "large"],
)
def test_arrays_come_back_as_they_were(tmp_path, array, protocol):
    found = read_pickled(write(tmp_path / "a", {"data": array, "labels": [1, 2]}, protocol))
    assert np.array_equal(found["data"], array)
    assert found["labels"] == [1, 2]


def test_plain_values(tmp_path):
    value = {
        b"a": [1, -5, 2**20, 2**40, -(2**40), True, False, None],
        "b": ("x", "é", b"\xff", (), (1,), (1, 2)),
        "c": {},
    }
    for protocol in (2, 3, 4, 5):
        found = read_pickled(write(tmp_path / "a", value, protocol))
        assert found == value


def test_strings_of_python_2(tmp_path):
    """As in the official files: byte strings of the old protocol, an array of `numpy.core`."""
    raw = bytes(range(8))
    stream = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02K\x04\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T\x08\x00\x00\x00" + raw + b"tbU\x06labelsq\x08]q\x09(K\x03K\x07eu."
    )
    assert [op.name for op, _, _ in pickletools.genops(stream)][-1] == "STOP"  # it is a pickle
    (tmp_path / "a").write_bytes(stream)
    found = read_pickled(tmp_path / "a")
    assert found[b"data"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert found[b"labels"] == [3, 7]


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("function", [os.system, eval, print, getattr, np.load, os.remove])
def test_nothing_is_called(tmp_path, protocol, function):
    trap = tmp_path / "trap"
    path = write(tmp_path / "a", {"data": Hostile(function, f"touch {trap}")}, protocol)
    with pytest.raises(DataError, match=r"was not opened|damaged"):
        read_pickled(path)
    assert not trap.exists()


def test_the_refusal_names_what_was_asked_for(tmp_path):
    with pytest.raises(DataError, match=r"it asks for posix\.system"):
        read_pickled(write(tmp_path / "a", Hostile(os.system, "true")))


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"]), np.array([1 + 2j]), np.zeros(2, "i4,f8")])
def test_only_arrays_of_numbers(tmp_path, array):
    if array.dtype == object:
        array[0] = "x"
    with pytest.raises(DataError):
        read_pickled(write(tmp_path / "a", array))


def test_shapes_that_claim_too_much(tmp_path):
    content = pickle.dumps(np.zeros((3, 5), np.uint8), protocol=2)
    path = tmp_path / "a"
    path.write_bytes(content.replace(b"K\x03K\x05\x86", b"K\xffK\xff\x86"))
    with pytest.raises(DataError, match="does not fit its 15 bytes"):
        read_pickled(path)


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_refused_or_harmless(tmp_path, seed):
    generator = np.random.default_rng(seed)
    content = pickle.dumps(
        {b"data": generator.integers(0, 256, (3, 7), dtype=np.uint8), b"labels": [1, 2, 3], b"names": [b"x.png"] * 3},
        protocol=2 + seed % 4,
    )
    for _ in range(50):
        mutated = bytearray(content)
        for position in generator.integers(0, len(content), 3):
            mutated[position] = generator.integers(0, 256)
        (tmp_path / "a").write_bytes(mutated[: generator.integers(1, len(content) + 1)] if seed % 2 else mutated)
        with suppress(DataError):
            read_pickled(tmp_path / "a")
