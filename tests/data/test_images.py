"""Labelled images: selection, names, refusals, in memory and as files alike; and the split that holds some out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remix.data import DataError, ImageDataset, Splits, UnreadableImage, hold_out, load
from remix.data.images import first_of_each
from tests.data.samples import make_folder, make_splits, numbers


@pytest.fixture(params=["memory", "files"])
def dataset(request, tmp_path):
    root = make_folder(tmp_path / "photos", classes=("ant", "bee", "cat"), each=4)
    return load(root, size=8, holdout=0, lazy=request.param == "files").train


def test_a_batch_is_bytes_and_labels(dataset):
    images, labels = dataset.batch([5, 0, 11])
    assert images.dtype == torch.uint8
    assert images.shape == (3, *dataset.input_shape) == (3, 3, 8, 8)
    assert images[:, 0, 0, 0].tolist() == [21, 0, 43]
    assert labels.tolist() == [1, 0, 2]


def test_select_takes_positions_and_masks(dataset):
    by_position = dataset.select([8, 1])
    by_mask = dataset.select(dataset.labels == 1)
    assert by_position.batch([0, 1])[0][:, 0, 0, 0].tolist() == [40, 1]
    assert by_mask.counts() == {"ant": 0, "bee": 4, "cat": 0}


def test_of_classes_keeps_labels_and_names(dataset):
    some = dataset.of_classes(["cat", 0])
    assert some.labels.tolist() == [0] * 4 + [2] * 4
    assert some.classes == dataset.classes


def test_relabelled_puts_classes_in_the_given_order_and_leaves_out_the_others(dataset):
    some = dataset.relabelled([2, 0])
    assert some.classes == ("cat", "ant")
    assert some.counts() == {"cat": 4, "ant": 4}
    assert some.batch([0])[0][0, 0, 0, 0] == 0
    assert some.labels[0] == 1
    every = dataset.relabelled([2, 0, 1])
    assert every.images is dataset.images


def test_decoded_is_the_same_in_memory(dataset):
    whole = dataset.decoded()
    assert whole.in_memory
    assert torch.equal(whole.batch([3, 7])[0], dataset.batch([3, 7])[0])


def test_a_file_that_vanished_is_named(tmp_path):
    root = make_folder(tmp_path / "photos")
    dataset = load(root, size=8, lazy=True, holdout=0).train
    (root / "cat" / "2.png").unlink()
    with pytest.raises(UnreadableImage, match=r"cat/2\.png: no such file"):
        dataset.batch(range(len(dataset)))


@pytest.mark.parametrize(
    ("images", "labels", "classes", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.tensor([0, 0]), ("a",), "uint8"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.tensor([0, 0]), ("a",), "uint8"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0]), ("a",), "one per image"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0.0, 0.0]), ("a",), "int64"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), ("a",), "0 to 0"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([-1, 0]), ("a",), "from -1"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "a"), "twice: a"),
    ],
)
def test_parts_that_do_not_fit_are_refused(images, labels, classes, message):
    with pytest.raises(DataError, match=message):
        ImageDataset(images, labels, classes)


def test_an_unknown_class_gets_a_suggestion():
    with pytest.raises(DataError, match="did you mean 'class3'"):
        make_splits().train.of_classes(["clas3"])


def test_an_order_names_each_class_once():
    with pytest.raises(DataError, match="each once"):
        make_splits(classes=3).train.relabelled([0, 0, 1])


def test_selection_copies_only_what_is_selected():
    train = make_splits(classes=4, each=3).train
    part = train.of_classes([2])
    assert numbers(part.images) == [6, 7, 8]
    assert part.images.untyped_storage().nbytes() == train.images.untyped_storage().nbytes() // 4


def held_out(labels, fraction, seed):
    images = torch.zeros(len(labels), 3, 4, 4, dtype=torch.uint8)
    images[:, 0, 0, 1] = torch.arange(len(labels))
    return hold_out(ImageDataset(images, labels, tuple("abcdef")), fraction, seed)


@given(st.lists(st.integers(0, 5), max_size=60), st.floats(0, 0.99), st.integers(0, 2**31))
def test_every_image_is_in_one_part_and_every_class_in_proportion(labels, fraction, seed):
    kept, held = held_out(torch.tensor(labels, dtype=torch.int64), fraction, seed)
    assert sorted(numbers(kept.images) + numbers(held.images)) == list(range(len(labels)))
    for label in set(labels):
        count, out = labels.count(label), int((held.labels == label).sum())
        assert out < count
        assert abs(out - fraction * count) <= 1
        assert out > 0 or count == 1 or fraction == 0


def test_the_seed_decides_what_is_held_out():
    labels = torch.arange(4).repeat(25)
    seven, again, eight = (numbers(held_out(labels, 0.2, seed)[1].images) for seed in (7, 7, 8))
    assert seven == again
    assert seven != eight


def test_held_out_images_are_gone_from_the_rest():
    train = make_splits().train
    kept, held = hold_out(train, 0.5, 0)
    assert sorted(numbers(kept.images) + numbers(held.images)) == numbers(train.images)


def test_parts_have_the_same_classes():
    one, other = make_splits(classes=3), make_splits(classes=4)
    with pytest.raises(DataError, match="same classes"):
        Splits(one.train, other.test, one.normalisation, "x")


def test_preprocessing_follows_from_the_images():
    splits = make_splits(shape=(3, 4, 4))
    assert splits.preprocessing.shape == splits.train.input_shape
    with pytest.raises(DataError, match="4 x 5"):
        _ = make_splits(shape=(3, 4, 5)).preprocessing


def test_the_first_images_of_each_class_in_the_order_they_had():
    images = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1)
    data = ImageDataset(images, torch.tensor([1, 0, 1, 1, 0, 1]), ("a", "b"))
    few = first_of_each(data, 2)
    assert few.images.flatten().tolist() == [0, 1, 2, 4]
    assert few.labels.tolist() == [1, 0, 1, 0]
    assert first_of_each(data, None) is data
