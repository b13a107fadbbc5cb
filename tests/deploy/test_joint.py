"""Joint training as the upper bound of a step."""

import pytest
import torch

from remix.data import DataError
from remix.deploy.joint import _joined
from tests.deploy.small import NAMES, digits, folder, learner, weights_of


@pytest.fixture
def first():
    found = learner(epochs=8)
    found.learn(digits([0, 1], each=40), classes=NAMES)
    return found


def test_it_learns_old_and_new_classes_and_leaves_the_learner_as_it_was(first):
    before = weights_of(first.model)
    old, new = (first.intake(digits(some, each=40), NAMES) for some in ([0, 1], [2, 3]))
    together = first.joint(old, new)
    assert together.classes == tuple(NAMES[:4])
    assert together.history[-1].images == (32, 32, 32, 32)
    assert together.evaluate(digits([0, 1, 2, 3], each=40), NAMES).macro > 80
    after = weights_of(first.model)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert first.classes == tuple(NAMES[:2])


def test_images_of_every_old_class_and_of_no_other_are_needed(first):
    new = first.intake(digits([2, 3]), NAMES)
    with pytest.raises(DataError, match="images of every old class, and there is none of digit 1"):
        first.joint(first.intake(digits([0]), NAMES), new)
    with pytest.raises(DataError, match="a class 'digit 5' that the model does not know"):
        first.joint(first.intake(digits([0, 1, 5]), NAMES), new)


def test_files_stay_files_and_mixed_images_are_decoded(tmp_path):
    from remix.data.folder import folder as read

    root = folder(tmp_path / "images", [0, 1])
    files, pixels = (read(root, size=8, channels=1, lazy=lazy).train for lazy in (True, False))
    assert _joined(files, files).images.paths == files.images.paths * 2
    mixed = _joined(files, pixels)
    assert torch.equal(mixed.images, torch.cat([pixels.images, pixels.images]))
    assert torch.equal(mixed.labels, torch.cat([files.labels, pixels.labels]))
