"""Parquet shards from elsewhere."""

import io
import os
import random
from contextlib import suppress

import pytest
from PIL import Image

from remix.data import DataError, Preprocessing
from remix.data.parquet import read_shards

arrow, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
SMALL = Preprocessing(8, 3, (0.5,) * 3, (0.5,) * 3)


def png():
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    return stream.getvalue()


def shard(folder, images, labels, **options):
    pq.write_table(arrow.table({"img": images, "label": labels}), folder / "train.parquet", **options)
    return [folder / "train.parquet"]


IMAGES = {
    "struct": [{"bytes": png(), "path": None}] * 3,
    "bytes": [png()] * 3,
    "large": arrow.array([png()] * 3, arrow.large_binary()),
    "dictionary": arrow.array([png()] * 3).dictionary_encode(),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_every_way_to_keep_bytes(tmp_path, kind):
    images, labels = read_shards(shard(tmp_path, IMAGES[kind], arrow.array([4, 5, 6], arrow.uint8())), "label", SMALL)
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
        read_shards(shard(tmp_path, IMAGES["struct"], labels), "label", SMALL)


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


def test_no_rows(tmp_path):
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
    monkeypatch.setattr("remix.data.parquet._LARGEST", 2**22)
    files = shard(tmp_path, [bytes(2**23)], [0], compression="zstd")
    assert files[0].stat().st_size < 2**16
    with pytest.raises(DataError, match=r"unfolds to [\d,]+ bytes, more than any shard"):
        read_shards(files, "label", SMALL)


def test_a_small_file_of_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("remix.data.parquet._MOST_ROWS", 1000)
    files = shard(tmp_path, [png()] * 1001, [0] * 1001)
    with pytest.raises(DataError, match="more than 1,000 images, more than this data set has"):
        read_shards(files, "label", SMALL)


def test_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "train.parquet")
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_shards([tmp_path / "train.parquet"], "label", SMALL)


def test_damage_is_refused_or_harmless(tmp_path):
    """Also where pyarrow would end the process: when asked for the columns of damaged metadata."""
    files = shard(tmp_path, [{"bytes": png(), "path": "x"}] * 3, [0, 1, 2])
    whole = files[0].read_bytes()
    generator = random.Random(0)
    for _ in range(500):
        mutated = bytearray(whole)
        for _ in range(generator.choice((1, 1, 5))):
            mutated[-generator.randrange(1, min(len(whole), 1500))] = generator.randrange(256)
        files[0].write_bytes(mutated)
        with suppress(DataError):
            read_shards(files, "label", SMALL)
