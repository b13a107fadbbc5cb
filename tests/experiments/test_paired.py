"""Spread over seeds, paired differences, and sentences that claim no more than the seeds allow."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remix.experiments.paired import Spread, paired_difference, spread

# Last accuracies of three published runs of two methods.
REMIX = {1: 45.86, 2: 45.38, 3: 44.79}
PMI = {1: 44.49, 2: 43.72, 3: 45.01}


def shifted(values, by):
    return {seed: value + by for seed, value in values.items()}


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_spread_is_mean_and_sample_deviation(values):
    result = spread(values)
    assert result.mean == pytest.approx(statistics.mean(values), abs=1e-9)
    assert result.std == pytest.approx(statistics.stdev(values), abs=1e-9)
    assert result.count == len(values)


def test_spreads_are_the_published_ones():
    assert str(spread(list(REMIX.values()))) == "45.34 ± 0.54"
    assert str(spread(list(PMI.values()))) == "44.41 ± 0.65"
    assert str(spread([45.86])) == "45.86"


def test_paired_difference_is_over_common_seeds():
    result = paired_difference(REMIX | {9: 0.0}, PMI | {7: 99.0})
    assert result.seeds == (1, 2, 3)
    assert result.differences == pytest.approx((1.37, 1.66, -0.22))
    assert result.spread.mean == pytest.approx(0.94, abs=0.005)
    assert result.higher == 2


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=7))
def test_interval_holds_the_mean_and_turns_with_the_order(values):
    first, second = dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0)
    result, turned = (paired_difference(one, other) for one, other in ((first, second), (second, first)))
    low, high = result.interval
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert turned.interval == pytest.approx((-high, -low), abs=1e-9)


def test_pairing_takes_out_what_a_seed_does_to_both():
    # Seeds differ by tens of points, the methods by one: unpaired, the difference would drown.
    hard = {1: 20.0, 2: 50.0, 3: 80.0, 4: 35.0, 5: 65.0, 6: 10.0}
    better = {seed: value + 1 + 0.1 * (seed % 2) for seed, value in hard.items()}
    assert paired_difference(better, hard).interval == pytest.approx((1.05, 1.05), abs=0.06)


def test_interval_of_many_seeds_is_that_of_the_normal():
    generator = random.Random(0)
    values = {seed: generator.gauss(0.5, 2) for seed in range(400)}
    result = paired_difference(values, dict.fromkeys(values, 0.0))
    half = 1.96 * result.spread.std / 20
    assert result.interval == pytest.approx((result.spread.mean - half, result.spread.mean + half), abs=0.03)


def test_the_same_values_give_the_same_interval():
    assert paired_difference(REMIX, PMI) == paired_difference(REMIX, PMI)
    assert paired_difference(REMIX, PMI).interval == paired_difference(dict(reversed(REMIX.items())), PMI).interval


def test_sentence_where_nothing_is_shown():
    sentence = paired_difference(REMIX, PMI).sentence("remix", "pmi")
    assert sentence.startswith(
        "remix minus pmi: +0.94 points on average over 3 paired seeds (95% bootstrap interval -0.22"
    )
    assert sentence.endswith("higher in 2 of 3). The interval contains 0: no difference is shown.")


def test_sentence_of_one_seed():
    sentence = paired_difference({4: 30.0}, {4: 28.5, 5: 1.0}).sentence("a", "b")
    assert (
        sentence == "a minus b: +1.50 points with the one seed that both have (4). One seed says nothing about chance."
    )


def test_few_seeds_never_settle_it():
    sentence = paired_difference(shifted(REMIX, 5), PMI).sentence("remix", "pmi")
    assert "excludes 0, but 3 seeds are few" in sentence
    assert "probability 25%" in sentence


@pytest.mark.parametrize(("gap", "word"), [(3.0, "higher"), (-3.0, "lower")])
def test_six_seeds_may_settle_it(gap, word):
    base = {seed: float(seed % 3) for seed in range(6)}
    better = {seed: value + gap + 0.1 * seed for seed, value in base.items()}
    assert paired_difference(better, base).sentence("a", "b").endswith(f"excludes 0: a is {word}.")


def test_equal_methods_show_no_difference():
    assert "no difference is shown" in paired_difference(REMIX, REMIX).sentence("a", "b")


def test_values_that_are_not_finite_or_not_paired_are_refused():
    with pytest.raises(ValueError, match="no common seed"):
        paired_difference({1: 1.0}, {2: 1.0})
    with pytest.raises(ValueError, match="finite"):
        paired_difference({1: float("nan")}, {1: 1.0})
    with pytest.raises(ValueError, match="finite"):
        paired_difference({1: float("nan"), 2: 1.0}, {1: 1.0, 2: 1.0})
    with pytest.raises(ValueError, match="at least one value"):
        spread([])
    assert spread([1.0]) == Spread(1.0, None, 1)
