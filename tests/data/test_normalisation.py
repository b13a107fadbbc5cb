"""Bytes to network input and back."""

import pytest
import torch

from remix.data import CLIP, IMAGENET, DataError, Normalisation


@pytest.mark.parametrize(
    "normalisation", [IMAGENET, CLIP, Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))]
)
def test_every_byte_survives_the_way_there_and_back(normalisation):
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1)
    floats = normalisation.normalise(images)
    assert floats.dtype == torch.float32
    assert torch.equal(normalisation.denormalise(floats), images)


def test_it_is_what_the_formula_says():
    normalisation = Normalisation((0.2, 0.5, 0.7), (0.1, 0.3, 0.6))
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    naive = torch.empty(2, 3, 4, 5, dtype=torch.float64)
    for channel, (mean, std) in enumerate(zip(normalisation.mean, normalisation.std, strict=True)):
        naive[:, channel] = (images[:, channel].double() / 255 - mean) / std
    torch.testing.assert_close(normalisation.normalise(images, torch.float64), naive, rtol=0, atol=1e-14)


def test_values_outside_the_bytes_are_cut_off():
    assert Normalisation((0.5,), (0.5,)).denormalise(torch.tensor([[[[-9.0, 9.0]]]])).flatten().tolist() == [0, 255]


def test_the_input_is_left_alone():
    images = torch.full((1, 3, 2, 2), 7, dtype=torch.uint8)
    floats = IMAGENET.normalise(images)
    before = floats.clone()
    IMAGENET.denormalise(floats)
    assert torch.equal(floats, before)
    assert (images == 7).all()


@pytest.mark.parametrize(("mean", "std"), [((), ()), ((0.5,), (0.5, 0.5)), ((0.5,), (0.0,))])
def test_numbers_that_cannot_be(mean, std):
    with pytest.raises(DataError, match="one number per channel"):
        Normalisation(mean, std)


@pytest.mark.parametrize("images", [torch.zeros(1, 3, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.uint8)])
def test_only_bytes_of_as_many_channels(images):
    with pytest.raises(DataError, match="uint8 images"):
        IMAGENET.normalise(images)
