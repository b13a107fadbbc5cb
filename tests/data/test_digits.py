"""The embedded data set."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from remix.data import load


def test_they_are_those_of_scikit_learn():
    everything, theirs = load("digits", holdout=0).train, load_digits()
    pixels = np.rint(theirs.images * (255 / 16)).astype(np.uint8)
    assert torch.equal(everything.images, torch.from_numpy(pixels)[:, None])
    assert torch.equal(everything.labels, torch.from_numpy(theirs.target))


def test_a_fifth_is_held_out():
    splits = load("digits")
    assert splits.train.input_shape == (1, 8, 8)
    assert (len(splits.train), len(splits.test)) == (1438, 359)


def test_the_normalisation_is_that_of_the_pixels():
    splits = load("digits", holdout=0)
    pixels = splits.train.images.double() / 255
    assert abs(pixels.mean() - splits.normalisation.mean[0]) < 1e-4
    assert abs(pixels.std() - splits.normalisation.std[0]) < 1e-4


def test_the_seed_chooses_the_test_images():
    assert torch.equal(load("digits", seed=3).test.images, load("digits", seed=3).test.images)
    assert not torch.equal(load("digits", seed=3).test.images, load("digits", seed=4).test.images)
