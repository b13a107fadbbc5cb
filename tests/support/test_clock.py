"""Time and memory of a run."""

import sys

import pytest
import torch

from remix.support.clock import RunClock


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the peak of a part of a process")
def test_memory_is_counted_by_phase():
    clock = RunClock()
    clock.turn_to("large")
    block = torch.ones(60, 2**20)  # 240 MiB
    large = clock.phase_peak
    del block
    clock.turn_to("small")
    small = clock.phase_peak
    assert large - small > 150 * 2**20
    assert clock.peak >= large  # of the whole run


def test_a_peak_of_an_earlier_process_counts():
    clock = RunClock(peak=2**50)
    clock.turn_to("phase")
    assert clock.peak == 2**50
    assert 0 < clock.phase_peak < 2**50


def test_memory_of_the_gpu_is_kept_apart(monkeypatch):
    clock = RunClock(peak_gpu=5)
    monkeypatch.setattr("remix.support.clock._on_gpu", lambda: 2**50)
    clock.turn_to("phase")
    monkeypatch.setattr("remix.support.clock._on_gpu", lambda: 1)
    assert clock.peak_gpu == clock.peak == 2**50
    assert RunClock(peak_gpu=5).peak_gpu == 5


def test_times_of_an_earlier_process_count():
    clock = RunClock({"train": 5.0}, processor=3.0)
    clock.turn_to("train")
    clock.turn_to(None)
    assert 5.0 <= clock.seconds["train"] < 9.0  # not counted twice
    assert clock.processor >= 3.0
