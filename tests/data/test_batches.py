"""Passes over a data set in batches, and random crops and flips."""

import threading

import pytest
import torch

from remix.data import Augment, DataError, Normalisation, UnreadableImage, batches, load
from tests.data.samples import make_folder, make_splits, numbers


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


PLAIN = Normalisation((0.0,) * 3, (1 / 255,) * 3)  # floats that are the bytes


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_image_comes_once_with_its_label():
    train = make_splits(classes=5, each=7).train
    found = list(batches(train, 8, seeded(), PLAIN))
    assert [len(x) for x, _ in found] == [8, 8, 8, 8, 3]
    order = [n for x, _ in found for n in numbers(x.round())]
    assert sorted(order) == list(range(35))
    assert order != list(range(35))
    assert [n // 7 for n in order] == torch.cat([y for _, y in found]).tolist()


def test_without_a_generator_they_come_in_order():
    train = make_splits(classes=5, each=7).train
    assert [n for x, _ in batches(train, 8, None, PLAIN) for n in numbers(x.round())] == list(range(35))


def test_epochs_differ_and_repeat_from_the_same_state():
    splits = make_splits()
    generator = seeded()
    state = generator.get_state()
    first, second = (list(batches(splits.train, 16, generator, splits.normalisation, Augment(1))) for _ in range(2))
    generator.set_state(state)
    again = list(batches(splits.train, 16, generator, splits.normalisation, Augment(1)))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][1], second[0][1])


def test_it_is_normalise_then_augment():
    splits = make_splits()
    generator = seeded()
    found = list(batches(splits.train, 16, generator, splits.normalisation, Augment(2)))
    naive = seeded()
    order = torch.randperm(len(splits.train), generator=naive)
    for (x, y), chunk in zip(found, order.split(16), strict=True):
        images, labels = splits.train.batch(chunk)
        assert torch.equal(x, Augment(2)(splits.normalisation.normalise(images), naive))
        assert torch.equal(y, labels)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_files_decoded_ahead_give_the_same_batches(tmp_path, size):
    root = make_folder(tmp_path, each=9, size=(20, 30))
    lazy, eager = (load(root, size=8, lazy=choice) for choice in (True, False))
    pairs = zip(
        batches(lazy.train, size, seeded(), lazy.normalisation, Augment(1)),
        batches(eager.train, size, seeded(), eager.normalisation, Augment(1)),
        strict=True,
    )
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


def test_threads_end_when_the_caller_stops_half_way(tmp_path):
    before = threading.active_count()
    train = load(make_folder(tmp_path, each=9), size=8, lazy=True).train
    running = batches(train, 2, seeded(), Normalisation((0.5,) * 3, (0.5,) * 3))
    next(running)
    assert threading.active_count() > before
    running.close()
    assert threading.active_count() == before


def test_a_file_that_vanishes_during_the_pass_is_named(tmp_path):
    root = make_folder(tmp_path, each=9)
    splits = load(root, size=8, lazy=True)
    next(iter(splits.train.images.paths)).unlink()
    with pytest.raises(UnreadableImage, match="no such file"):
        list(batches(splits.train, 2, None, splits.normalisation))


def test_nothing_makes_no_batches():
    train = make_splits().train
    assert list(batches(train.select([]), 4, seeded(), PLAIN)) == []


def test_refusals_come_before_the_first_batch():
    train = make_splits().train
    with pytest.raises(DataError, match="at least one image"):
        batches(train, 0, seeded(), PLAIN)
    with pytest.raises(DataError, match="needs a generator"):
        batches(train, 4, None, PLAIN, Augment())
