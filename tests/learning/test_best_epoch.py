"""The best epoch is the one that stays."""

import torch
from torch import nn

from remix.learning import BestEpoch


def run(values, patience=2):
    """A stage whose weight is the number of the epoch; the epochs made and the weight that stays."""
    module = nn.Linear(1, 1)
    scores = iter(values)
    best = BestEpoch(lambda: next(scores), patience)
    best.begin()
    made = 0
    for number in range(len(values)):
        with torch.no_grad():
            module.weight.fill_(number)
        made += 1
        if best.after_epoch([module]):
            break
    best.end([module])
    return made, float(module.weight)


def test_goes_back_to_the_best():
    assert run([3.0, 1.0, 2.0]) == (3, 1.0)


def test_stops_when_patience_ends():
    assert run([3.0, 1.0, 2.0, 2.0, 0.0]) == (4, 1.0)


def test_goes_on_while_things_get_better():
    assert run([3.0, 2.0, 1.0, 0.5]) == (4, 3.0)


def test_a_judgement_that_is_not_a_number_is_never_best():
    assert run([float("nan"), 2.0, float("nan")]) == (3, 1.0)
