"""`predict`: what is done to any kind of image, and the probabilities that come of it."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from PIL import Image

from remix.data import UnreadableImage
from remix.deploy.prediction import find_images, predict, probabilities


def test_what_is_stored_with_the_model_is_done_to_any_kind_of_image(model, digits):
    file = digits / "two" / "0.png"
    picture = Image.open(file)
    bytes_hw = np.asarray(picture)
    kinds = [
        file,
        str(file),
        picture,
        picture.convert("RGB"),
        bytes_hw,
        bytes_hw / 255,
        torch.from_numpy(bytes_hw.copy())[None],
        bytes_hw.astype(np.uint16) * 257,
    ]
    expected = predict(model, file)
    assert expected.names[0][0] == "two"
    assert expected.labels[0, 0] == 2
    for image in kinds:
        assert torch.equal(predict(model, image).probabilities, expected.probabilities)
    together = predict(model, kinds, batch=3)
    assert together.labels.shape == (8, 4)
    assert all(names == expected.names[0] for names in together.names)
    assert torch.allclose(together.probabilities, expected.probabilities.expand(8, 4), atol=1e-6)


def test_probabilities_are_those_of_the_network(model):
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    x = (images / 255 - model.preprocessing.mean[0]) / model.preprocessing.std[0]
    expected = model.classifier(x).softmax(1)
    assert torch.allclose(probabilities(model, images), expected, atol=1e-6)
    found = predict(model, images, top=2)
    assert torch.allclose(found.probabilities, expected.topk(2).values, atol=1e-6)
    assert torch.equal(found.labels, expected.topk(2).indices)
    assert len(predict(model, [])) == 0


def test_what_cannot_be_predicted_is_told(model):
    with pytest.raises(ValueError, match="at least 1, got 0 and 32"):
        predict(model, [], top=0)
    with pytest.raises(UnreadableImage, match=r"within 0\.\.1"):
        predict(model, torch.full((1, 8, 8), 3.0))
    with pytest.raises(UnreadableImage, match="no such file"):
        predict(model, "nothing.png")


def test_a_folder_that_cannot_be_listed_is_told_once(tmp_path, monkeypatch):
    def refuse(place):
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(os, "scandir", refuse)
    skipped = []
    assert list(find_images([tmp_path], skipped)) == []
    assert [one.reason for one in skipped] == ["cannot be listed: Permission denied"]
