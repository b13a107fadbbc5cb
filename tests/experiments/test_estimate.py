"""How long a run will take."""

import pytest
import torch

from remix.cli import main
from remix.experiments import estimate
from remix.experiments.config import resolve
from remix.experiments.estimate import Estimate, seconds_per_image
from remix.experiments.plan import load_tasks, plan_run


def test_minutes_are_the_images_of_the_plan_times_the_seconds_of_one(monkeypatch):
    timed = []
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: timed.append(config) or 0.5)
    config = resolve("digits")
    work = plan_run(config, load_tasks(config.data, None)).work
    known = Estimate(None)
    assert known.minutes(config) == pytest.approx(work * 0.5 / 60)
    assert known.minutes(resolve("digits", seed=1)) == known.minutes(config)
    assert len(timed) == 1  # a network is timed once


def test_data_that_are_not_here_have_their_official_numbers(monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1.0)
    config = resolve("cifar100-mini", method="finetune")
    assert Estimate(None).minutes(config) == pytest.approx(plan_run(config, None).work / 60)


def test_a_network_is_timed_on_one_thread_and_threads_are_given_back():
    before = torch.get_num_threads()
    assert 0 < seconds_per_image(resolve("digits")) < 1
    assert torch.get_num_threads() == before


def test_a_dry_run_says_how_long_it_would_take(capsys, monkeypatch):
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 60 / 166_080)  # a minute for all its images
    main(["run", "digits", "--method", "remix", "--dry-run"])
    assert "about 1 min 00 s of one core here" in capsys.readouterr().out
    if not torch.cuda.is_available():
        main(["run", "digits", "--accelerator", "cuda", "--dry-run"])
        assert "there is no cuda here" in capsys.readouterr().out
