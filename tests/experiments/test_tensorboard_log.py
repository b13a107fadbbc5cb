"""`remix run --log tensorboard`."""

import json
import shutil

import pytest
from tiny_runs import remix_run, tiny
from written_runs import write_run

from remix.cli import main
from remix.experiments import tensorboard_log
from remix.experiments.metrics_file import read_events
from remix.experiments.run_monitor import RunMonitor
from remix.experiments.tensorboard_log import TensorBoardLog
from remix.support.settings import SettingError

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")


def scalars(folder):
    """By tag the steps and values that TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    found.Reload()
    tags = found.Tags()
    numbers = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags["scalars"]}
    return numbers, {tag: [event.step for event in found.Images(tag)] for tag in tags["images"]}


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


def test_without_an_event_nothing_is_removed(tmp_path):
    """A process that is refused because another one works there."""
    theirs = tmp_path / "tensorboard" / "events.out.tfevents.1.theirs"
    theirs.parent.mkdir()
    theirs.touch()
    with TensorBoardLog(theirs.parent, tmp_path):
        pass
    assert list(theirs.parent.iterdir()) == [theirs]


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


def test_without_tensorboard_it_is_said_before_anything_is_done(tmp_path, monkeypatch, refusal):
    monkeypatch.setattr(tensorboard_log.importlib.util, "find_spec", lambda name: None)
    message = refusal("run", "digits", "--out", tmp_path / "run", "--log", "tensorboard")
    assert "pip install 'remix-dfcil[tensorboard]'" in message
    assert not (tmp_path / "run").exists()


def test_another_log_is_refused(tmp_path):
    with pytest.raises(SettingError, match="--log must be tensorboard, got 'wandb'"):
        remix_run(tiny("finetune", tmp_path / "run"), log="wandb")


def test_help_names_it(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "--log {tensorboard}" in capsys.readouterr().out


def test_json_is_written_beside_it(tmp_path):
    assert remix_run(tiny("finetune", tmp_path / "run"), log="tensorboard") == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["event"] == "start"
