"""Fashion-MNIST and its IDX files; a run on it comes to its end."""

import gzip
import os
import struct

import numpy as np
import pytest
from tiny_runs import remix_run, tiny

from remix.data import DataError, MissingData, load
from remix.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES
from remix.data.fashion_mnist import CLASSES, read_idx
from remix.learning.history import check_class_names


def idx(array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def write_fashion(folder, zipped=True, labels=None):
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    written = {}
    for part, count in (("train", 9), ("t10k", 4)):
        chosen = generator.integers(0, 10, count, dtype=np.uint8) if labels is None else labels[part]
        images = generator.integers(0, 256, (len(chosen), 28, 28), dtype=np.uint8)
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", chosen)):
            content = idx(array)
            (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)
        written[part] = images, chosen
    return written


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["fashion-mnist", "dataset-fashion-mnist", "FashionMNIST/raw", "."])
def test_fashion_mnist_where_people_have_it(tmp_path, zipped, place):
    root = tmp_path / "data"
    written = write_fashion(root / place, zipped)
    splits = load("fashion-mnist", root)
    for dataset, (images, labels) in ((splits.train, written["train"]), (splits.test, written["t10k"])):
        assert np.array_equal(dataset.images[:, 0].numpy(), images)
        assert dataset.labels.tolist() == labels.tolist()
    assert splits.train.input_shape == (1, 28, 28)
    assert splits.classes[0] == "T-shirt or top"


def test_three_of_four_files_are_not_enough(tmp_path):
    write_fashion(tmp_path / "fashion-mnist")
    (tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingData, match="fashion-mnist was not found"):
        load("fashion-mnist", tmp_path)


def test_labels_that_do_not_fit_the_images(tmp_path):
    write_fashion(tmp_path / "fashion-mnist", zipped=False)
    (tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match="not images with a label each"):
        load("fashion-mnist", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"text instead of images",
        idx(np.zeros((3, 4), np.uint8))[:-1],
        idx(np.zeros((3, 4), np.uint8)) + b"x",
        struct.pack(">HBB", 0, 13, 1) + struct.pack(">I", 1) + b"\0\0\0\0",
        struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 4),
        struct.pack(">HBB3I", 0, 8, 3, 2**31, 28, 0),
        struct.pack(">HBB", 0, 8, 2) + b"\0\0",
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_files_are_refused(tmp_path, content, zipped):
    path = tmp_path / ("a.gz" if zipped else "a")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match=r"fetch it again|claims"):
        read_idx(path)


def test_damaged_compression_is_refused(tmp_path):
    content = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (30, 40), dtype=np.uint8)))
    for damaged in (content[:-100], content[:50] + bytes(50) + content[100:], b"not gzip at all"):
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="fetch it again"):
            read_idx(tmp_path / "a.gz")


def test_a_small_file_that_unfolds_without_end(tmp_path):
    content = struct.pack(">HBB3I", 0, 8, 3, 10_000_000, 28, 28)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content + bytes(2**24)))
    with pytest.raises(DataError, match="claims to hold 7,840,000,000 bytes, which no file of this data set does"):
        read_idx(tmp_path / "a.gz")


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_a_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_idx(tmp_path / name)


@pytest.mark.parametrize("names", [CLASSES, CIFAR10_CLASSES, CIFAR100_CLASSES, load("digits").classes])
def test_official_names_may_be_names_of_classes(names):
    check_class_names(names)


def test_fashion_5_comes_to_its_end(tmp_path):
    labels = np.arange(40, dtype=np.uint8) % 10
    write_fashion(tmp_path / "fashion-mnist", labels={"train": labels, "t10k": labels[:20]})
    short = [word for word in tiny("finetune", tmp_path)["set"] if "epochs" in word]
    typed = {"preset": "fashion-5", "method": "finetune", "out": str(tmp_path / "run"), "set": short}
    assert remix_run(typed, data=str(tmp_path)) == 0
    assert (tmp_path / "run" / "model.remix").is_file()
