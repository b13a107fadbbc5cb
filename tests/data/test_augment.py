"""Random crops and flips of a batch, against a loop over images."""

import pytest
import torch

from remix.data import Augment, DataError


def one_by_one(images, padding, flip, generator):
    """The slow twin: each image is put into a frame of zeros, cropped, then mirrored."""
    count, channels, height, width = images.shape
    shifts = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    out = []
    for k, image in enumerate(images):
        frame = torch.zeros(channels, height + 2 * padding, width + 2 * padding)
        frame[:, padding : padding + height, padding : padding + width] = image
        top, left = int(shifts[0, k]), int(shifts[1, k])
        crop = frame[:, top : top + height, left : left + width]
        out.append(crop.flip(-1) if flip and mirrored[k] else crop)
    return torch.stack(out)


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("shape", [(5, 3, 8, 8), (64, 1, 8, 6), (1, 3, 5, 9)])
def test_it_is_the_loop(shape, padding, flip):
    images = torch.randn(shape)
    fast = Augment(padding, flip)(images, torch.Generator().manual_seed(3))
    slow = one_by_one(images, padding, flip, torch.Generator().manual_seed(3))
    assert torch.equal(fast, slow)


def test_every_shift_and_side_occurs_equally_often():
    image = torch.zeros(1, 1, 9, 9)
    image[..., 4, 3] = 1.0
    views = Augment(2, True)(image.expand(20_000, 1, 9, 9), torch.Generator().manual_seed(0))
    where = views.flatten(1).argmax(1)
    rows = torch.bincount(where // 9, minlength=9)
    assert rows.nonzero().squeeze().tolist() == [2, 3, 4, 5, 6]
    assert (rows[2:7] - 4000).abs().max() < 250
    assert ((where % 9).float().mean() - 4).abs() < 0.05  # column 3 or its mirror image, 5


def test_only_the_given_generator_is_used():
    before = torch.get_rng_state()
    Augment()(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("augment", [Augment(0, False), Augment(4, True)])
def test_what_is_drawn_does_not_depend_on_the_settings(augment):
    """So that a run with another augmentation sees its images in the same order."""
    generator, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    augment(torch.randn(7, 3, 8, 8), generator)
    torch.randint(0, 9, (2, 7, 1), generator=other), torch.rand(7, 1, generator=other)
    assert torch.equal(generator.get_state(), other.get_state())


def test_nothing_to_do_is_nothing_done():
    images = torch.randn(3, 3, 4, 4)
    assert Augment(0, False)(images, torch.Generator()) is images


def test_a_border_has_a_width():
    with pytest.raises(DataError, match="crop_padding"):
        Augment(-1)
