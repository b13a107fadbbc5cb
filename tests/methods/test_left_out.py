"""Judging heads by scores of images that they have not seen."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from remix.methods.left_out import accuracy, judge


def example() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    good = 2 * torch.nn.functional.one_hot(labels, 3) + torch.randn(90, 3, generator=generator).double()
    return torch.stack([torch.randn(90, 3, generator=generator).double(), good, 0.01 * good]), labels


def test_the_better_head_is_taken_whatever_its_scores_are_scaled_by():
    scores, labels = example()
    found = judge(scores, labels)
    assert found.place == 1  # the first of two that are equally good
    assert judge(scores[[0, 2]], labels).loss == pytest.approx(found.loss)
    assert judge(scores[[0, 2]], labels).scale == pytest.approx(100 * found.scale, rel=1e-4)


def test_the_scale_is_the_one_with_the_least_cross_entropy():
    scores, labels = example()
    found = judge(scores[1:2], labels)

    def loss(scale: float) -> float:
        return float(cross_entropy(scale * scores[1], labels, label_smoothing=1 / 91))

    assert found.loss == pytest.approx(loss(found.scale))
    assert found.loss < min(loss(0.99 * found.scale), loss(1.01 * found.scale))


def test_images_that_are_all_right_make_no_head_certain():
    labels = torch.arange(20) % 2
    scores = (2 * torch.nn.functional.one_hot(labels, 2).double() - 1)[None]
    found = judge(scores, labels)
    chances = (found.scale * scores[0]).softmax(1).max(1).values
    assert bool(((chances > 0.9) & (chances < 1 - 1 / 100)).all())


def test_where_there_is_nothing_to_tell_apart_nothing_is_told():
    for images in (5, 0):
        assert judge(torch.zeros(3, images, 2), torch.zeros(images, dtype=torch.int64)) == (0, math.log(2), 1.0)


def test_a_head_that_cannot_tell_is_worse_than_one_that_can():
    scores, labels = example()
    assert judge(torch.stack([torch.zeros(90, 3).double(), scores[1]]), labels).place == 1


def test_accuracy_is_in_percent():
    assert accuracy(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 1])) == 50.0
