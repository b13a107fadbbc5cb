"""The pickles and parquet shards of CIFAR, sound and hostile."""

import io
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as pq
import pytest
from PIL import Image

from remix.data import DataError, Preprocessing, cifar_files, unpickling
from remix.data.cifar_files import read_pickled, read_shards
from remix.data.unpickling import PIXELS, RefusedPickle, unpickle

IMAGES = np.random.default_rng(0).integers(0, 256, (3, PIXELS), dtype=np.uint8)
CONTENT = {b"data": IMAGES, b"labels": [1, 2, 3], b"filenames": [b"x.png"] * 3}


def write(path, value, protocol=2):
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("order", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"])
def test_images_come_back_as_they_were(tmp_path, order, protocol, core):
    content = pickle.dumps(CONTENT | {b"data": order(IMAGES)}, protocol=protocol)
    ours = np._core.__name__.encode() if hasattr(np, "_core") else b"numpy.core"
    if protocol < 4:  # later ones say how long a name is
        content = content.replace(b"c" + ours + b".", b"c" + core + b".")
    pixels, labels = read_pickled(write(tmp_path / "a", content), "labels")
    assert np.array_equal(pixels, IMAGES)
    assert labels.tolist() == [1, 2, 3]
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable  # as torch wants it


def test_files_of_python_2_are_read(tmp_path):
    """As the official ones: byte strings of the old protocol, an array of `numpy.core`."""
    stream = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x03M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T\x00\x24\x00\x00" + IMAGES.tobytes() + b"tbU\x06labelsq\x08]q\x09(K\x03K\x07K\x09eu."
    )
    assert [op.name for op, _, _ in pickletools.genops(stream)][-1] == "STOP"  # it is a pickle
    pixels, labels = read_pickled(write(tmp_path / "a", stream), "labels")
    assert np.array_equal(pixels, IMAGES)
    assert labels.tolist() == [3, 7, 9]


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("function", [os.system, eval, print, getattr, np.load, os.remove])
def test_nothing_is_called(tmp_path, protocol, function):
    trap = tmp_path / "trap"
    path = write(tmp_path / "a", CONTENT | {b"more": Hostile(function, f"touch {trap}")}, protocol)
    with pytest.raises(DataError, match=r"was not opened: it asks for "):
        read_pickled(path, "labels")
    assert not trap.exists()


def test_names_reach_the_terminal_escaped_and_in_part(tmp_path):
    path = write(tmp_path / "a", b"cevil\x1b[31m" + b"x" * 9999 + b"\nname\n.")
    with pytest.raises(DataError, match=r"asks for evil\\x1b\[31mx+\.name; fetch it again") as error:
        read_pickled(path, "labels")
    assert len(str(error.value)) < 300 + len(str(path))


def test_names_that_are_no_text(tmp_path):
    names = b"X\x03\x00\x00\x00\xed\xa0\x80" + b"X\xf0\x00\x00\x00" + "\U0001f600".encode() * 60
    with pytest.raises(DataError, match=r"asks for \\ud800\.\\U0001f600"):
        read_pickled(write(tmp_path / "a", b"\x80\x04" + names + b"\x93."), "labels")


def doublings(count):
    """A tuple of two of the tuple before, so many times: small to write, for ever to hash or compare."""
    return b")\x940" + b"".join(b"h%ch%c\x86\x940" % (k, k) for k in range(count)) + b"h%c" % count


KEYS = {
    "nested tuples": b"}" + b")" + b"\x85" * 3_000_000 + b"Ns.",
    "doubled tuples": b"}" + doublings(60) + b"Ns.",
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_pickle_that_ends_or_occupies_its_reader_is_one_sentence(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(cifar_files, "_SECONDS", 2)
    with pytest.raises(DataError, match="was given up: reading it takes more time or memory"):
        read_pickled(write(tmp_path / "a", b"\x80\x04" + KEYS[kind]), "labels")


@pytest.mark.skipif(sys.platform != "linux", reason="memory cannot be limited elsewhere")
@pytest.mark.parametrize(
    "content",
    [b"Nr\xff\xff\xff\xff.", b"\x8e" + struct.pack("<Q", 2**40) + b".", b"\x8b\xff\xff\xff\x7f."],
    ids=["a distant memo", "long bytes", "a long number"],
)
def test_memory_is_limited(tmp_path, content):
    with pytest.raises(DataError, match=r"is damaged or cut off|was given up"):
        read_pickled(write(tmp_path / "a", b"\x80\x04" + content), "labels")


def test_processor_time_is_limited(tmp_path):
    """Whoever started it may be gone: the child ends by itself."""
    pytest.importorskip("resource")
    path = write(tmp_path / "a", b"\x80\x04" + KEYS["doubled tuples"])
    command = [sys.executable, "-I", "-S", "-c", CHILD.format(file=unpickling.__file__)]
    with path.open("rb") as stream:
        run = subprocess.run(command, stdin=stream, capture_output=True, timeout=60)
    assert run.returncode < 0  # by a signal


CHILD = """
import runpy, sys
sys.argv = ["", "labels"]
module = runpy.run_path({file!r})
module["_main"].__globals__["_SECONDS"] = 1
module["_main"]()
"""


def pickled(**changes):
    return pickle.dumps(CONTENT | {key.encode(): value for key, value in changes.items()}, protocol=2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps([1, 2]), "is not a table with names"),
        (pickle.dumps(CONTENT | {3: 4}), "is not a table with names"),
        (pickle.dumps(CONTENT | {(): 4}), "is not a table with names"),
        (pickled(data=[1, 2]), "has no images"),
        (pickled(data=None), "has no images"),
        (pickled(data=IMAGES.astype(np.int8)), "has no images"),
        (pickled(data=IMAGES[:, :5]), "has no images"),
        (pickle.dumps(CONTENT | {b"data": IMAGES[:0], b"labels": []}), "has no images"),
        (pickled(data=np.array([object], dtype=object)), "has no images|was not opened"),
        (pickled(data=np.zeros(2, "i4,f8")), "has no images"),
        (pickled().replace(b"K\x03M\x00\x0c\x86", b"K\xffM\x00\x0c\x86"), "has no images"),
        (b"c_codecs\nencode\nK\x01U\x06latin1\x86R.", "is damaged"),
        (b"\x80\x02cnumpy\ndtype\n)\x81.", "is not a table"),
        (pickled(labels=None), "has no label for each image"),
        (pickled(labels=[1, 2]), "has no label for each image"),
        (pickled(labels=(1, 2, 3)), "has no label for each image"),
        (pickled(labels=[1, None, 3]), "has labels under .* that are not whole numbers"),
        (pickled(labels=[1, "x", 3]), "has labels under .* that are not whole numbers"),
        (pickled(labels=[1, 2.0, 3]), "has labels under .* that are not whole numbers"),
        (pickled(labels=[1, 2**63, 3]), "has labels under .* that are not whole numbers"),
        (b"", "is damaged"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(tmp_path, content, reason):
    with pytest.raises(DataError, match=rf"a ({reason}).*; fetch it again"):
        read_pickled(write(tmp_path / "a", content), "labels")


def test_a_shape_of_many_long_numbers(tmp_path):
    """Their product would take for ever."""
    shape = b"(" + (b"\x8a\xff" + b"\x7f" * 255) * 20_000 + b"t"
    content = pickled()
    assert content.count(b"K\x03M\x00\x0c\x86") == 1
    with pytest.raises(DataError, match="has no images"):
        read_pickled(write(tmp_path / "a", content.replace(b"K\x03M\x00\x0c\x86", shape)), "labels")


def test_only_regular_files_of_a_reasonable_size(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_pickled(tmp_path / "pipe", "labels")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(DataError, match="more than any file of this data set"):
        read_pickled(tmp_path / "large", "labels")


def test_a_process_that_cannot_be_started(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_pickled(write(tmp_path / "a", CONTENT), "labels")


@pytest.mark.parametrize("seed", range(20))
def test_damage_to_a_pickle_is_refused_or_harmless(seed):
    generator = np.random.default_rng(seed)
    content = pickle.dumps(CONTENT, protocol=seed % 6)
    for _ in range(50):
        mutated = bytearray(content)
        for position in generator.integers(0, len(content), 3):
            mutated[position] = generator.integers(0, 256)
        cut = generator.integers(1, len(content) + 1) if seed % 2 else None
        with suppress(RefusedPickle):
            raw, _, labels = unpickle(io.BytesIO(mutated[:cut]), "labels")
            assert len(raw) == len(labels) * PIXELS


SMALL = Preprocessing(8, 3, (0.5,) * 3, (0.5,) * 3)


def png():
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    return stream.getvalue()


def shard(folder, images, labels, **options):
    pq.write_table(arrow.table({"img": images, "label": labels}), folder / "train.parquet", **options)
    return [folder / "train.parquet"]


ENCODED = {
    "struct": [{"bytes": png(), "path": None}] * 3,
    "bytes": [png()] * 3,
    "large": arrow.array([png()] * 3, arrow.large_binary()),
    "dictionary": arrow.array([png()] * 3).dictionary_encode(),
}


@pytest.mark.parametrize("kind", ENCODED)
def test_every_way_to_keep_bytes(tmp_path, kind):
    images, labels = read_shards(shard(tmp_path, ENCODED[kind], arrow.array([4, 5, 6], arrow.uint8())), "label", SMALL)
    assert images.shape == (3, 3, 8, 8)
    assert labels.tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    "labels",
    [
        [0.0, 1.0, 2.0],
        [0, None, 2],
        ["a", "b", "c"],
        [[0], [1], [2]],
        [True, False, True],
        arrow.array([0, 1, 2], arrow.timestamp("s")),
        arrow.array([0, 1, 2**64 - 1], arrow.uint64()),
    ],
    ids=["floats", "null", "texts", "lists", "booleans", "times", "beyond int64"],
)
def test_labels_that_are_none(tmp_path, labels):
    with pytest.raises(DataError, match=r"column label of .* is not made of whole numbers"):
        read_shards(shard(tmp_path, ENCODED["struct"], labels), "label", SMALL)


@pytest.mark.parametrize(
    "images",
    [
        [{"bytes": None, "path": "x"}] * 3,
        arrow.array([None] * 3, arrow.struct([("bytes", arrow.binary())])),
        [{"bytes": {"bytes": png()}}] * 3,
        [[{"bytes": png()}]] * 3,
        [[1, 2, 3]] * 3,
        ["text"] * 3,
        [1, 2, 3],
    ],
    ids=["null bytes", "null", "nested", "list of structs", "lists", "texts", "numbers"],
)
def test_images_that_are_none(tmp_path, images):
    with pytest.raises(DataError, match=r"has no image bytes in row 0"):
        read_shards(shard(tmp_path, images, [0, 1, 2]), "label", SMALL)


def test_a_shard_without_rows_is_refused(tmp_path):
    files = shard(tmp_path, arrow.array([], arrow.binary()), arrow.array([], arrow.int64()))
    with pytest.raises(DataError, match="no images in"):
        read_shards(files, "label", SMALL)


def test_a_column_twice_and_columns_of_odd_names(tmp_path):
    columns = [arrow.array([1]), arrow.array([png()]), arrow.array([png()])]
    for names, reason in (
        (["label", "img", "img"], r"no readable parquet file \(.*exists 2 times"),
        (["label", "\x1b[31m", "x"], r"has the columns label, \\x1b\[31m, x; wanted are img or image, and label"),
    ):
        pq.write_table(arrow.Table.from_arrays(columns, names=names), tmp_path / "train.parquet")
        with pytest.raises(DataError, match=reason):
            read_shards([tmp_path / "train.parquet"], "label", SMALL)


def test_a_small_file_that_unfolds_to_much(tmp_path, monkeypatch):
    monkeypatch.setattr("remix.data.cifar_files._LARGEST_SHARD", 2**22)
    files = shard(tmp_path, [bytes(2**23)], [0], compression="zstd")
    assert files[0].stat().st_size < 2**16
    with pytest.raises(DataError, match=r"unfolds to [\d,]+ bytes, more than any shard"):
        read_shards(files, "label", SMALL)


def test_a_small_file_of_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("remix.data.cifar_files._MOST_ROWS", 1000)
    files = shard(tmp_path, [png()] * 1001, [0] * 1001)
    with pytest.raises(DataError, match="more than 1,000 images, more than this data set has"):
        read_shards(files, "label", SMALL)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "train.parquet")
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_shards([tmp_path / "train.parquet"], "label", SMALL)


def test_damage_to_a_shard_is_refused_or_harmless(tmp_path):
    """Also where pyarrow would end the process: when asked for the columns of damaged metadata."""
    files = shard(tmp_path, [{"bytes": png(), "path": "x"}] * 3, [0, 1, 2])
    whole = files[0].read_bytes()
    generator, refused = random.Random(0), 0
    for _ in range(500):
        mutated = bytearray(whole)
        for _ in range(generator.choice((1, 1, 5))):
            mutated[-generator.randrange(1, min(len(whole), 1500))] = generator.randrange(256)
        files[0].write_bytes(mutated)
        try:
            images, labels = read_shards(files, "label", SMALL)
        except DataError:
            refused += 1
        else:
            assert len(images) == len(labels) <= 3
    assert refused > 250
