"""Which output of a head means which class."""

from __future__ import annotations

import pytest
import torch

from remix.deploy.measuring import settle_order

FOLDERS = ("apple", "bear", "cat")


def confusion(outputs, right=18, wrong=1, size=None):
    """Images of class k are read as outputs[k], but for a few."""
    table = torch.full((len(outputs), size or len(outputs)), wrong)
    table[torch.arange(len(outputs)), torch.tensor(outputs)] = right
    return table


def test_alphabetical():
    order = settle_order(FOLDERS, None, confusion([0, 1, 2]))
    assert (order.outputs, order.names, order.right) == ((0, 1, 2), FOLDERS, 54)
    assert not order.notes
    assert not order.warnings


def test_another_order_that_the_images_show():
    order = settle_order(FOLDERS, None, confusion([2, 0, 1]))
    assert order.names == ("bear", "cat", "apple")
    assert order.right == 54
    assert "bear, cat, apple" in order.notes[0]


def test_outputs_without_images_are_numbered():
    order = settle_order(FOLDERS, None, confusion([4, 0, 1], size=5))
    assert order.names == ("bear", "cat", "output 2", "output 3", "apple")


def test_a_network_that_recognises_nothing_keeps_the_alphabet_and_warns():
    order = settle_order(FOLDERS, None, confusion([1, 2, 0], right=4, wrong=4))
    assert order.names == FOLDERS
    assert "guessing would get" in order.warnings[0]


def test_names_are_believed_but_doubted():
    order = settle_order(FOLDERS, ["apple", "bear", "cat"], confusion([2, 0, 1]))
    assert order.names == FOLDERS
    assert "bear, cat, apple" in order.warnings[0]


@pytest.mark.parametrize(
    ("names", "outputs", "message"),
    [(None, 2, "3 folders of images, but the head has 2"), (["apple", "bear", "catt"], 3, "is it 'catt'")],
)
def test_refused(names, outputs, message):
    with pytest.raises(ValueError, match=message):
        settle_order(FOLDERS, names, torch.ones(3, outputs, dtype=torch.int64))
