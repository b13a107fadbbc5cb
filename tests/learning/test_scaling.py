"""The table of loss scales of the method."""

import pytest

from remix.learning.losses import LossScales

# new classes, old classes, local (f_ce), hard (f_hkd), relational (f_rkd), head (f_ft)
TABLE = [
    (20, 20, 0.966799, 0.518915, 1.729716, 1.933597),
    (20, 80, 0.483399, 1.037829, 3.459432, 0.966799),
    (10, 10, 1.040140, 0.387744, 1.292481, 2.080279),
    (10, 50, 0.465165, 0.867023, 2.890076, 0.930329),
    (10, 90, 0.346713, 1.163233, 3.877444, 0.693426),
    (5, 5, 1.164971, 0.271103, 0.903677, 2.329942),
    (5, 95, 0.267263, 1.181712, 3.939039, 0.534525),
    (40, 40, 0.920753, 0.658848, 2.196159, 1.841505),
    (40, 160, 0.460376, 1.317695, 4.392317, 0.920753),
    (20, 180, 0.322266, 1.556744, 5.189147, 0.644532),
    (10, 190, 0.238624, 1.690139, 5.633795, 0.477249),
]


@pytest.mark.parametrize(("new", "old", "local", "hard", "relational", "head"), TABLE)
def test_table(new, old, local, hard, relational, head):
    scales = LossScales(local=0.75, head=1.5, hard=0.15, relational=0.5).for_task(new, old)
    assert (scales.local, scales.hard, scales.relational, scales.head) == pytest.approx(
        (local, hard, relational, head), abs=6e-7
    )
    assert LossScales(local=0.5).for_task(new, old).local == pytest.approx(local * 2 / 3, abs=6e-7)
    assert LossScales(head=1.0).for_task(new, old).head == pytest.approx(head * 2 / 3, abs=6e-7)


def test_defaults_are_those_of_the_method():
    assert LossScales() == LossScales(local=0.75, head=1.5, hard=0.15, relational=0.5)


@pytest.mark.parametrize(("new", "old"), [(0, 10), (10, 0)])
def test_the_first_task_has_none(new, old):
    with pytest.raises(ValueError, match="later task"):
        LossScales().for_task(new, old)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_impossible_weights(weight):
    with pytest.raises(ValueError, match="relational"):
        LossScales(relational=weight)
