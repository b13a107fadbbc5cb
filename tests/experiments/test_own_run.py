"""Runs on data in memory, as they would be on the same images in a folder."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from remix.data import DataError
from remix.experiments.own_run import own_run
from remix.experiments.plan import check_run
from remix.experiments.run import execute
from remix.experiments.run_directory import RunDirectory
from tests.data.samples import make_folder
from tests.data.test_intake import Table, feature

TINY = ["settings.first.epochs=1", "settings.later.epochs=1", "network.options.width=2"]


def images(each=5, classes=4, side=32):
    labels = torch.arange(each * classes) % classes
    pixels = torch.randint(256, (len(labels), 3, side, side), dtype=torch.uint8, generator=torch.manual_seed(0))
    return pixels, labels


@pytest.mark.parametrize("kind", ["pair", "dataset", "loader", "iterator", "pictures", "hugging face"])
def test_whatever_holds_images_makes_the_same_run(kind):
    pixels, labels = images()
    pictures = [
        (Image.fromarray(one.permute(1, 2, 0).numpy()), int(label)) for one, label in zip(pixels, labels, strict=True)
    ]
    data = {
        "pair": (pixels, labels),
        "dataset": TensorDataset(pixels, labels),
        "loader": DataLoader(TensorDataset(pixels, labels), batch_size=3),
        "iterator": iter(pictures),
        "pictures": pictures,
        "hugging face": Table(
            [{"image": one, "label": label} for one, label in pictures],
            {"image": feature("Image"), "label": feature("ClassLabel", names=list("abcd"))},
        ),
    }[kind]
    config, stream = own_run(data, tasks=2, method="finetune")
    assert [len(task.classes) for task in stream] == [2, 2]
    assert [len(task.train) for task in stream] == [8, 8]
    assert config.network.options["input_shape"] == [3, 32, 32]
    check_run(config, stream)


def test_a_folder_is_the_run_of_the_command(tmp_path):
    photos = make_folder(tmp_path / "photos", classes=tuple("ab"), each=5)
    config, stream = own_run(photos, method="finetune")
    assert config.data.name == str(photos)
    assert len(stream) == 2


def test_test_images_of_ones_own_are_tested_on():
    pixels, labels = images()
    _, stream = own_run((pixels, labels), (pixels[:4], labels[:4]), tasks=2, method="finetune")
    assert [len(task.train) for task in stream] == [10, 10]
    assert [len(task.test) for task in stream] == [2, 2]
    with pytest.raises(DataError, match="a class 'class 7' that no training image has"):
        own_run((pixels, labels), (pixels[:1], torch.tensor([7])))


def test_what_is_no_image_is_refused():
    with pytest.raises(DataError, match="no image"):
        own_run(([], []))
    with pytest.raises(DataError, match="an image must be a picture"):
        own_run((np.zeros(10), np.arange(10) % 2))
    with pytest.raises(DataError, match="has one class"):
        own_run((images()[0], torch.zeros(20, dtype=torch.int64)))


@pytest.mark.slow
def test_it_runs_to_its_end(tmp_path):
    config, stream = own_run(images(), tasks=2, method="finetune", assignments=TINY)
    summary = execute(config, stream, RunDirectory(tmp_path / "run"))
    assert summary["data"] == "mine"
    assert (tmp_path / "run" / "model.remix").is_file()
