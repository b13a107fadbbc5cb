"""Torch's global random source is lent, not taken."""

import pytest
import torch
from torch import nn

from remix.support.global_random import undisturbed


def test_the_state_is_as_it_was_and_a_seed_decides_within():
    before = torch.get_rng_state()
    with undisturbed(3):
        first = nn.Linear(2, 2).weight
    with undisturbed(3):
        again = nn.Linear(2, 2).weight
    with undisturbed():
        other = torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert torch.equal(other, torch.rand(2))  # without a seed it goes on from where it stood


def test_it_is_as_it_was_after_an_error_too():
    @undisturbed()
    def fails():
        torch.rand(1)
        raise KeyError

    before = torch.get_rng_state()
    with pytest.raises(KeyError):
        fails()
    assert torch.equal(torch.get_rng_state(), before)
