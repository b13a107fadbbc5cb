"""Layer-wise inversion against that of pixels: equal costs, and what is said of them."""

import pytest
from made_targets import make, rows_of

from remix.inversion import LayerwiseSettings, Schedule
from remix.reproduce import convergence
from remix.reproduce.needed_runs import Variant

QUICK = ("data.tasks=1", "data.classes=3", "settings.first.epochs=1", "network.options={width: 4}")


def rows(**objectives):
    """Two networks; the objective by inversion at 10 and 20 passes, and as much read right, out of 100."""
    return [
        {"method": name, "seed": seed, "passes": passes, "objective": value, "judged_right": 100 - value + seed}
        for name, values in objectives.items()
        for seed in (0, 1)
        for passes, value in zip((10, 20), values, strict=True)
    ]


def test_layerwise_inversion_is_held_against_the_better_rate_at_every_cost():
    found = rows(**{"layer-wise": (4.0, 2.0), "pixels, rate 0.4": (8.0, 1.0), "pixels, rate 0.1": (2.0, 4.0)})
    ratios, judged = convergence._sentences(found, 20)
    assert "2.00 with 10, 2.00 with 20 passes" in ratios
    assert "layer-wise minus pixels, rate 0.4: -1.00 points read right" in judged


@pytest.mark.parametrize("factor", convergence._FACTORS)
def test_a_schedule_of_another_length_keeps_its_shape(factor):
    schedule = LayerwiseSettings().refine
    scaled = convergence._scaled(schedule, round(factor * schedule.steps))
    for part in (0.3, 0.6, 0.9):
        assert scaled(int(part * scaled.steps)) == schedule(int(part * schedule.steps))
    assert convergence._scaled(Schedule(8, 1.0, milestones=(5, 6)), 1).milestones == (1,)


def test_the_plan_tells_what_comes_after_the_training(tmp_path):
    _, text = make("convergence", tmp_path / "out", dry_run=True)
    assert "3 runs to do" in text
    assert "every network dreams 200 images, each with 1,395 passes in all" in text  # 3 x (15 + 30 + 60 + 120 + 240)


@pytest.mark.slow
def test_every_inversion_has_the_same_costs_targets_and_judges(tmp_path, monkeypatch):
    monkeypatch.setattr(convergence, "one_task", lambda preset: Variant(preset, "remix", QUICK))
    monkeypatch.setattr(convergence, "_FACTORS", (0.1, 1.0))
    monkeypatch.setattr(convergence, "_IMAGES", {"mini": 30})
    out = tmp_path / "convergence"
    complete, text = make("convergence", out, seeds="0-1", jobs=2)
    assert complete
    assert "the network of seed 1 dreams, that of seed 0 judges" in text
    found = rows_of(out / "convergence.csv")
    assert len(found) == 2 * 2 * 3
    assert {(row["method"], row["passes"]) for row in found} == {
        (name, passes) for name in ("layer-wise", "pixels, rate 0.4", "pixels, rate 0.1") for passes in ("6", "60")
    }
    for name in ("layer-wise", "pixels, rate 0.4", "pixels, rate 0.1"):
        for seed in "01":
            short, long = (float(row["objective"]) for row in found if (row["method"], row["seed"]) == (name, seed))
            assert long < short
    assert (out / "convergence.png").read_bytes().startswith(b"\x89PNG")
    _, text = make("convergence", out, seeds="0-1", resume=True)
    assert "the network of seed" not in text  # all rows were there
