"""A run that is killed, at any moment, and gone on with ends with the same bytes as one that was not."""

import json
import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest
from tiny_runs import run_saving, tiny

from remix.experiments.events import MetricsFile, read_events
from remix.experiments.run_monitor import RunMonitor
from remix.experiments.run_state import RunState, Saving
from remix.inversion import Checkpoint
from remix.learning.model_file import KIND, VERSION
from remix.statistics import read_file

pytestmark = pytest.mark.slow

ALWAYS = Saving(epochs=0.0, phase=0.0, inversion=0.0)
NEVER = Saving(epochs=1e9, phase=1e9, inversion=1e9)


class Crash(BaseException):
    """As sudden as a power cut: nothing handles it."""


def go(method: str, out: Path, saving: Saving, resume: bool = True) -> int:
    return run_saving(tiny(method, out), saving, resume)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The `result` of an unbroken run by method; each is run once."""
    known = {}

    def of(method: str) -> tuple[bytes, dict[str, bytes], list[str]]:
        if method not in known:
            out = tmp_path_factory.mktemp("unbroken") / method
            assert go(method, out, NEVER) == 0
            known[method] = result(out)
        return known[method]

    return of


def result(out: Path) -> tuple[bytes, dict[str, bytes], list[str]]:
    """The matrix, every weight and statistic of the model as bytes, and what was written down."""
    tensors, _ = read_file(out / "model.remix", KIND, VERSION)
    weights = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return (out / "matrix.csv").read_bytes(), weights, lines(out)


def lines(out: Path) -> list[str]:
    """What is written down, without times and memory, and without the beginnings of processes."""
    found = read_events(out / "metrics.jsonl")
    assert not found.damages
    measured = ("seconds", "processor", "peak_bytes")
    return [
        json.dumps({key: value for key, value in event.items() if key not in measured})
        for event in found.events
        if event["event"] != "start"
    ]


def test_the_time_of_an_interrupted_inversion_counts(tmp_path, monkeypatch):
    original, spent = RunMonitor.inversion, 3600.0

    def inversion(self, progress):
        self.clock._seconds["dream"] = spent
        original(self, progress)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(RunMonitor, "inversion", inversion)
        with pytest.raises(Crash):
            go("remix", tmp_path / "run", ALWAYS)
    assert go("remix", tmp_path / "run", ALWAYS) == 0
    assert 60 <= json.loads((tmp_path / "run" / "summary.json").read_text())["minutes"]["dream"] < 120


def test_dreams_too_large_to_save_are_said_to_be_lost(tmp_path, monkeypatch, capsys):
    def inversion(self, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunMonitor, "inversion", inversion)
    for largest, lost in ((0, "the part of the dreams under way"), (2**30, "the last minute or epoch")):
        saving = Saving(inversion=0.0, largest=largest)
        assert run_saving(tiny("remix", tmp_path / "run"), saving, resume=True) == 130
        assert f"interrupted; all but {lost}" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["finetune", "joint", "deepinversion", "rdfcil", "remix"])
def test_a_run_goes_on_after_every_epoch_and_phase(method, unbroken, tmp_path, monkeypatch):
    """Each process saves at three safe points and crashes at the next, until one comes to its end."""
    expected = unbroken(method)
    saves = 0
    original = RunState.save

    def save(self, *args):
        nonlocal saves
        if saves == 3:
            raise Crash
        saves += 1
        original(self, *args)

    monkeypatch.setattr(RunState, "save", save)
    crashes = 0
    while True:
        saves = 0
        try:
            assert go(method, tmp_path / "run", ALWAYS) == 0
            break
        except Crash:
            crashes += 1
    assert crashes >= 3
    assert result(tmp_path / "run") == expected


@pytest.mark.parametrize("stop", [Crash, KeyboardInterrupt])
@pytest.mark.parametrize("method", ["remix", "abd"])
def test_an_inversion_goes_on_where_it_was_saved(method, stop, unbroken, tmp_path, monkeypatch):
    expected = unbroken(method)
    steps: list[int] = []
    original = RunMonitor.inversion

    def inversion(self, progress):
        original(self, progress)
        steps.append(progress.step.step)
        if len(steps) in (5, 12):
            raise stop

    monkeypatch.setattr(RunMonitor, "inversion", inversion)
    for _ in range(2):
        if stop is Crash:
            with pytest.raises(Crash):
                go(method, tmp_path / "run", ALWAYS)
        else:
            assert go(method, tmp_path / "run", ALWAYS) == 130
        assert list((tmp_path / "run" / "checkpoints").glob("inversion-*.safetensors"))
    made = len(steps)
    assert go(method, tmp_path / "run", ALWAYS) == 0
    assert result(tmp_path / "run") == expected
    assert not list((tmp_path / "run" / "checkpoints").glob("inversion-*.safetensors"))
    monkeypatch.undo()
    calls = len(steps)

    def counted(self, progress):
        original(self, progress)
        steps.append(0)

    monkeypatch.setattr(RunMonitor, "inversion", counted)
    assert go(method, tmp_path / "again", NEVER) == 0
    assert calls == len(steps) - calls, f"steps were repeated: {made} before the last start"


def test_an_inversion_too_large_to_save_goes_on_at_the_last_chunk(unbroken, tmp_path, monkeypatch):
    """50 and 70 pseudo-samples in chunks of at most 40: what is saved are finished chunks."""
    expected = unbroken("remix")
    small = Saving(epochs=1e9, phase=1e9, inversion=0.0, largest=30_000)
    original, phases = RunMonitor.inversion, []

    def inversion(self, progress):
        original(self, progress)
        phases.append(progress.number)
        if self.task == 2 and progress.number == 8:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(RunMonitor, "inversion", inversion)
        with pytest.raises(Crash):
            go("remix", tmp_path / "run", small)
    (file,) = (tmp_path / "run" / "checkpoints").glob("inversion-*.safetensors")
    assert file.name == "inversion-3.safetensors"
    assert file.stat().st_size < 40_000
    checkpoint = Checkpoint.load(file)
    assert (checkpoint.record["loop"], checkpoint.record["number"]) == (None, 6)
    assert go("remix", tmp_path / "run", small) == 0
    assert result(tmp_path / "run") == expected


@pytest.mark.parametrize("method", ["remix", "rdfcil"])
@pytest.mark.parametrize(
    "saving", [ALWAYS, Saving(0.0, 1e9, 0.0), Saving(1e9, 0.0, 1e9), Saving(1e9, 1e9, 0.0, 30_000)]
)
def test_a_run_that_crashes_at_any_line_writes_all_of_them_once(method, saving, unbroken, tmp_path, monkeypatch):
    """Before or after it, whatever was saved last."""
    expected = unbroken(method)
    original, chance = MetricsFile.write, random.Random(0)

    def write(self, event, **values):
        dice = chance.random()
        if dice > 0.04:
            original(self, event, **values)
        if dice < 0.08:
            raise Crash

    monkeypatch.setattr(MetricsFile, "write", write)
    while True:
        try:
            assert go(method, tmp_path / "run", saving) == 0
            break
        except Crash:
            pass
    assert result(tmp_path / "run") == expected


def test_kill_9_at_ten_moments(unbroken, tmp_path):
    """Real processes, killed after random times."""
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["remix.experiments.run", "lightning_fabric"])
    chance = random.Random(0)

    def start(method: str, out: Path) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=run_saving, args=(tiny(method, out), ALWAYS, True))
        process.start()
        return process

    for method in ("remix", "rdfcil"):
        begin = time.monotonic()
        first = start(method, tmp_path / f"{method}-whole")
        first.join()
        whole = time.monotonic() - begin
        assert result(tmp_path / f"{method}-whole") == unbroken(method), "two processes must agree"
        kills, number = 0, 0
        while kills < 5:
            # Killed until it comes to its end, then another one.
            out, number, finished = tmp_path / f"{method}-{number}", number + 1, False
            while not finished:
                process = start(method, out)
                if kills < 5:
                    process.join(timeout=chance.uniform(0.05, 0.7) * whole)
                if kills < 5 and process.is_alive():
                    process.kill()
                    kills += 1
                process.join()
                assert process.exitcode in (0, -9)
                finished = process.exitcode == 0
            assert result(out) == unbroken(method)
