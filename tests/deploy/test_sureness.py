"""The calibration error against one counted by hand."""

import pytest
import torch

from remix.deploy.sureness import Sureness


def test_the_error_is_the_difference_of_sureness_and_right_answers_in_bins():
    chances = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [1.0, 0.0]])
    found = Sureness()
    seen = list(found.watched([(chances[:2], [0, 1]), (chances[2:], [0, 1, 0])]))
    assert [labels for _, labels in seen] == [[0, 1], [0, 1, 0]]
    # 0.9 is in another bin than 1.0: three images of which two are right, one sure and right, one of 0.7 and right
    expected = 100 * (3 / 5 * abs(2 / 3 - 0.9) + 1 / 5 * 0.3 + 0.0)
    assert found.error() == pytest.approx(expected, abs=1e-4)


def test_answers_that_are_as_often_right_as_sure_have_none_and_nothing_has_none():
    found = Sureness()
    assert found.error() == 0
    found.add(torch.tensor([[0.75, 0.25]] * 4), torch.tensor([0, 0, 0, 1]))
    assert found.error() == pytest.approx(0)
