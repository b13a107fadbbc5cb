import pytest

from remix.inversion import LayerwiseSettings, Schedule


def test_refinement_has_the_published_rates():
    rate = LayerwiseSettings().refine
    assert rate.steps == 160
    expected = [0.08, 0.08, 0.16, 0.24, 0.32] + [0.4] * 80 + [0.2] * 40 + [0.1] * 35
    assert [rate(step) for step in range(160)] == pytest.approx(expected)


def test_cosine_of_period_2000_at_step_600():
    assert Schedule(2000, 1.0, cosine_period=2000)(600) == pytest.approx(0.7938926, abs=1e-7)


def test_cosine_ends_at_zero_and_stays_there():
    schedule = Schedule(30, 1.0, cosine_period=20)
    assert schedule(20) == pytest.approx(0)
    assert schedule(29) == pytest.approx(0)


@pytest.mark.parametrize(
    "bad", [{"steps": 0}, {"rate": 0.0}, {"rate": float("nan")}, {"warm_up": -1}, {"milestones": (5, 3)}]
)
def test_numbers_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Schedule(**({"steps": 10, "rate": 0.1} | bad))
