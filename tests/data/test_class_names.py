"""Names of classes can be printed, used in file names, and saved in a model."""

import numpy as np
import pytest
from tiny_runs import remix_run, tiny

from remix.data import load
from remix.data.cifar_names import CIFAR10_CLASSES, CIFAR100_CLASSES
from remix.data.fashion_mnist import CLASSES
from remix.learning.class_names import check_class_names
from tests.data.test_idx import write_fashion


@pytest.mark.parametrize("names", [CLASSES, CIFAR10_CLASSES, CIFAR100_CLASSES, load("digits").classes])
def test_official_names(names):
    check_class_names(names)


def test_fashion_5_comes_to_its_end(tmp_path):
    labels = np.arange(40, dtype=np.uint8) % 10
    write_fashion(tmp_path / "fashion-mnist", labels={"train": labels, "t10k": labels[:20]})
    short = [word for word in tiny("finetune", tmp_path)["set"] if "epochs" in word]
    typed = {"preset": "fashion-5", "method": "finetune", "out": str(tmp_path / "run"), "set": short}
    assert remix_run(typed, data=str(tmp_path)) == 0
    assert (tmp_path / "run" / "model.remix").is_file()
