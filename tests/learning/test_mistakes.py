"""What a model is confused about, in a sentence that fits a history."""

import torch

from remix.learning.mistakes import most_mistaken


def scores(answers):
    return torch.nn.functional.one_hot(torch.tensor(answers), 3).double()


def test_the_pairs_that_are_mistaken_most_often_are_told():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])
    found = most_mistaken(scores([1, 1, 1, 0, 2, 2, 1, 0, 2]), labels, ["ant", "bee", "cat"])
    assert found == ["most often mistaken: ant for bee (3 of 4), bee for cat (2 of 3)"]


def test_single_mistakes_are_not_told_and_long_names_are_cut():
    labels = torch.tensor([0, 0, 1])
    assert most_mistaken(scores([1, 0, 1]), labels, ["ant", "bee", "cat"]) == []
    (told,) = most_mistaken(scores([1, 1, 1]), labels, ["a" * 200, "b" * 200, "c"])
    assert len(told) < 300
