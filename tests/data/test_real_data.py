"""CIFAR-100 and photographs of ImageNet as they are. Runs where REMIX_DATA names a folder that has them."""

import shutil
import subprocess
import sys

import pytest
import torch

from remix.data import Augment, MissingData, TaskStream, batches, load
from remix.data.file_lists import INDEX
from remix.data.prepare import Watcher, prepare
from remix.data.registry import find_dataset
from remix.data.task_stream import ORDERS

pytestmark = pytest.mark.slow

MEASURE = """
import sys, resource
import remix.data, numpy, torch
def resident(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = resident()
splits = remix.data.load("cifar100", sys.argv[1])
assert len(splits.train) + len(splits.test) == 60000
print(resident() - before)
"""


@pytest.fixture(scope="module")
def cifar(data_dir):
    return load("cifar100", data_dir)


def test_cifar100_is_complete_and_official(data_dir, tmp_path):
    (tmp_path / "cifar-100-binary").mkdir()
    for name in ("train.bin", "test.bin"):
        (tmp_path / "cifar-100-binary" / name).symlink_to(data_dir / "cifar-100-binary" / name)
    splits = prepare("cifar100", tmp_path)
    assert set(splits.train.counts().values()) == {500}
    assert set(splits.test.counts().values()) == {100}


def test_the_constants_of_cifar100_are_those_of_its_pixels(cifar):
    pixels = cifar.train.images.permute(1, 0, 2, 3).reshape(3, -1).float() / 255
    assert pixels.mean(1).tolist() == pytest.approx(cifar.normalisation.mean, abs=2e-4)
    assert pixels.std(1).tolist() == pytest.approx(cifar.normalisation.std, abs=2e-4)


def test_the_names_of_cifar100_are_the_official_ones(cifar, data_dir):
    assert (data_dir / "cifar-100-binary" / "fine_label_names.txt").read_text().split() == list(cifar.classes)


def test_cifar100_takes_less_than_200_megabytes(data_dir):
    if not sys.platform.startswith("linux"):
        pytest.skip("measures memory the Linux way")
    run = subprocess.run([sys.executable, "-c", MEASURE, str(data_dir)], capture_output=True, text=True, check=True)
    assert 180e6 < int(run.stdout) < 200e6


def test_the_first_task_of_order_a(cifar):
    task = TaskStream(cifar, 10, "A")[0]
    assert task.classes[:4] == ("cloud", "bicycle", "boy", "beetle")
    assert (len(task.train), len(task.test)) == (5000, 1000)
    sizes = [len(x) for x, _ in batches(task.train, 128, torch.Generator(), cifar.normalisation, Augment())]
    assert sizes == [128] * 39 + [8]


def test_fashion_mnist_is_complete_and_official(data_dir, tmp_path):
    if not (data_dir / "fashion-mnist").is_dir():
        pytest.skip("REMIX_DATA has no fashion-mnist/")
    shutil.copytree(data_dir / "fashion-mnist", tmp_path / "fashion-mnist")
    splits = prepare("fashion-mnist", tmp_path)
    assert set(splits.train.counts().values()) == {6000}
    pixels = splits.train.images.float() / 255
    assert float(pixels.mean()) == pytest.approx(splits.normalisation.mean[0], abs=1e-4)
    assert float(pixels.std()) == pytest.approx(splits.normalisation.std[0], abs=1e-4)


def test_imagenette_is_complete_and_normalised(data_dir):
    splits = load("imagenette", data_dir, size=64)
    assert set(splits.train.counts().values()) == {100}
    assert set(splits.test.counts().values()) == {30}
    assert not splits.skipped
    x, y = next(batches(splits.train, 32, None, splits.normalisation))
    assert x.shape == (32, 3, 64, 64)
    assert set(y.tolist()) == {0}
    assert x.mean().abs() < 1
    assert 0.5 < x.std() < 2


def test_photographs_that_went_bad_are_left_out(data_dir, tmp_path):
    for name in ("church", "tench"):
        shutil.copytree(data_dir / "imagenette" / "val" / name, tmp_path / name)
    whole = (tmp_path / "church" / "000.jpg").read_bytes()
    (tmp_path / "church" / "000.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "tench" / "001.jpg").write_bytes(b"")
    splits = prepare(tmp_path)
    assert sorted(one.path.name for one in splits.skipped) == ["000.jpg", "001.jpg"]
    assert len(splits.train) + len(splits.test) == 58


@pytest.mark.parametrize(
    ("name", "order", "classes", "folder"),
    [("tiny-imagenet", "B", 20, "tiny-imagenet-200"), ("cub200", "D", 40, "CUB_200_2011")],
)
def test_the_classes_that_are_there_are_the_first_of_their_order(data_dir, tmp_path, name, order, classes, folder):
    if not (data_dir / folder).is_dir():
        pytest.skip(f"needs {folder} in REMIX_DATA")
    (tmp_path / folder).mkdir()
    for file in (data_dir / folder).iterdir():
        if file.name != INDEX:
            (tmp_path / folder / file.name).symlink_to(file)
    said = []
    splits = prepare(name, tmp_path, Watcher(note=said.append))
    if len(splits.here) == 200:
        assert said == []
        return
    assert f"a part of {name}: {classes} of 200 classes, each of them whole" in said[0]
    assert find_dataset(name).part_here(tmp_path) == f"{classes} of 200"
    stream = TaskStream(splits, 5, order, classes=classes)
    assert stream.order == ORDERS[order][:classes]
    assert all(len(task.train) and len(task.test) for task in stream)
    with pytest.raises(MissingData, match=rf"has {classes} of the 200 classes .* \(classes={classes}\)"):
        TaskStream(splits, 10, order)
