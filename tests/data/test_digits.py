"""The embedded data set."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from remix.data import load


def test_all_digits_are_there_once():
    splits = load("digits")
    everything = torch.cat([splits.train.images, splits.test.images]).flatten(1)
    ours = sorted(map(bytes, everything.numpy()))
    theirs = sorted(map(bytes, np.rint(load_digits().images * 255 / 16).astype(np.uint8).reshape(-1, 64)))
    assert ours == theirs
    assert splits.train.input_shape == (1, 8, 8)
    assert len(splits.test) == 359


def test_the_normalisation_is_that_of_the_pixels():
    splits = load("digits", holdout=0)
    pixels = splits.train.images.double() / 255
    assert abs(pixels.mean() - splits.normalisation.mean[0]) < 1e-4
    assert abs(pixels.std() - splits.normalisation.std[0]) < 1e-4


def test_the_seed_chooses_the_test_images():
    assert torch.equal(load("digits", seed=3).test.images, load("digits", seed=3).test.images)
    assert not torch.equal(load("digits", seed=3).test.images, load("digits", seed=4).test.images)
