"""The seeded split that takes the same fraction of every class."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remix.data import DataError, Splits, hold_out
from remix.data.splits import stratified
from tests.data.samples import make_splits, numbers


@given(st.lists(st.integers(0, 5), max_size=60), st.floats(0, 0.99), st.integers(0, 2**31))
def test_every_image_is_in_one_part_and_every_class_in_proportion(labels, fraction, seed):
    labels = torch.tensor(labels, dtype=torch.int64)
    kept, held = stratified(labels, fraction, seed)
    assert sorted(kept.tolist() + held.tolist()) == list(range(len(labels)))
    for label in set(labels.tolist()):
        count, out = int((labels == label).sum()), int((labels[held] == label).sum())
        assert out < count
        assert abs(out - fraction * count) <= 1
        assert out > 0 or count == 1 or fraction == 0


def test_the_seed_decides():
    labels = torch.arange(4).repeat(25)
    assert torch.equal(stratified(labels, 0.2, 7)[1], stratified(labels, 0.2, 7)[1])
    assert not torch.equal(stratified(labels, 0.2, 7)[1], stratified(labels, 0.2, 8)[1])


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
