"""The events of a run: what is written, what is read of it, and the same for TensorBoard."""

import importlib.util
import json
import shutil

import pytest
from tiny_runs import remix_run, tiny
from written_runs import write_run

from remix.cli import main
from remix.experiments.events import MetricsFile, TensorBoardLog, read_events
from remix.experiments.run_monitor import RunMonitor
from remix.support.settings import SettingError

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed"
)


def test_what_was_written_is_read(tmp_path):
    told = []
    file = MetricsFile(tmp_path / "metrics.jsonl", 0, told.append)
    file.write("phase", task=1, phase="dream", seconds=2.0)
    file.write("something new", task=1)
    file.close()
    found = read_events(tmp_path / "metrics.jsonl")
    assert list(found.events) == told
    assert [event["event"] for event in found.events] == ["phase", "something new"]
    assert found.damages == ()
    assert found.of("phase") == [told[0]]


def test_what_was_not_saved_goes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, 0)
    file.write("start of something")
    length = file.length
    file.write("lost")
    file.close()
    MetricsFile(path, length).close()
    assert [event["event"] for event in read_events(path).events] == ["start of something"]


def test_a_file_that_is_not_there_has_no_events(tmp_path):
    assert read_events(tmp_path / "metrics.jsonl").events == ()


def test_a_line_cut_off_by_a_crash_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "a"}\n{"event": "b"')
    found = read_events(path)
    assert [event["event"] for event in found.events] == ["a"]
    assert found.damages == (f"{path}, line 2: damaged, skipped",)


def scalars(folder):
    """By tag the steps and values that TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    found.Reload()
    tags = found.Tags()
    numbers = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags["scalars"]}
    return numbers, {tag: [event.step for event in found.Images(tag)] for tag in tags["images"]}


@needs_tensorboard
def test_events_become_scalars_and_images(tmp_path):
    run = write_run(tmp_path / "run")
    with TensorBoardLog(run / "tensorboard", run / "dreams") as log:
        for event in read_events(run / "metrics.jsonl").events:
            log(event)
    numbers, images = scalars(run / "tensorboard")
    assert numbers["accuracy/mean over tasks"] == [(1, 80), (2, 78.5), (3, 77)]
    assert numbers["accuracy/task 1"] == [(1, 80), (2, 77), (3, 74)]
    assert [step for step, _ in numbers["training/network/cross-entropy"]] == [
        1, 2, 3, 4, 9, 10, 11, 12, 17, 18, 19, 20,
    ]  # fmt: skip
    assert len(numbers["inversion/prior"]) == 12
    assert numbers["likelihood/block.2:input:channels"][-1] == (3, pytest.approx(0.3))
    assert images == {"dreams": [2, 3]}


@needs_tensorboard
def test_without_an_event_nothing_is_removed(tmp_path):
    """A process that is refused because another one works there."""
    theirs = tmp_path / "tensorboard" / "events.out.tfevents.1.theirs"
    theirs.parent.mkdir()
    theirs.touch()
    with TensorBoardLog(theirs.parent, tmp_path):
        pass
    assert list(theirs.parent.iterdir()) == [theirs]


@needs_tensorboard
def test_an_interrupted_run_has_every_step_once(tmp_path, monkeypatch):
    out = tmp_path / "run"

    def interrupted(self, report):
        original(self, report)
        if self.task == 2:
            raise KeyboardInterrupt

    original = RunMonitor.epoch
    with monkeypatch.context() as patch:
        patch.setattr(RunMonitor, "epoch", interrupted)
        assert remix_run(tiny("finetune", out), log="tensorboard") == 130
    assert remix_run(tiny("finetune", out), resume=True, log="tensorboard") == 0
    numbers, _ = scalars(out / "tensorboard")
    assert [step for step, _ in numbers["accuracy/mean over tasks"]] == [1, 2, 3]
    assert [step for step, _ in numbers["training/learning rate"]] == [1, 2, 3, 4, 5, 6]
    assert len(list((out / "tensorboard").iterdir())) == 1
    # A finished run can be written again, from its metrics alone.
    shutil.rmtree(out / "tensorboard")
    assert remix_run(tiny("finetune", out), resume=True, log="tensorboard") == 0
    assert scalars(out / "tensorboard")[0] == numbers


@needs_tensorboard
def test_without_tensorboard_it_is_said_before_anything_is_done(tmp_path, monkeypatch, refusal):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = refusal("run", "digits", "--out", tmp_path / "run", "--log", "tensorboard")
    assert "pip install 'remix-dfcil[tensorboard]'" in message
    assert not (tmp_path / "run").exists()


@needs_tensorboard
def test_another_log_is_refused(tmp_path):
    with pytest.raises(SettingError, match="--log must be tensorboard, got 'wandb'"):
        remix_run(tiny("finetune", tmp_path / "run"), log="wandb")


def test_help_names_tensorboard(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "--log {tensorboard}" in capsys.readouterr().out


@needs_tensorboard
def test_json_is_written_beside_it(tmp_path):
    assert remix_run(tiny("finetune", tmp_path / "run"), log="tensorboard") == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["event"] == "start"
