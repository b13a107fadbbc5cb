"""`remix run`: what it leaves, what it refuses, and how it stops."""

import errno
import functools
import io
import json
import os
import shutil
from collections import Counter
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from tiny_runs import config_of, remix_run, tiny

from remix.cli import main
from remix.experiments.config import build_config, resolve
from remix.experiments.plan import load_tasks, plan_run
from remix.experiments.run_directory import RunDirectory, RunDirectoryError
from remix.experiments.run_monitor import RunMonitor
from remix.experiments.run_state import RunState
from remix.learning import Engine
from remix.learning.metrics import AccuracyMatrix
from remix.learning.model_file import load_model
from remix.methods import create_method
from remix.networks import ConvNet, create_backbone
from tests.data.samples import make_folder


def go(typed: dict[str, Any], **options: Any) -> tuple[int, str]:
    """The status, and what was printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as text:
        patch.setenv("COLUMNS", "200")
        return remix_run(typed, **options), text.getvalue()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "remix"
    status, text = go(tiny("remix", out))
    assert status == 0
    return out, text


# --- what a run leaves ---


def test_a_run_leaves_plain_files(finished):
    out, text = finished
    assert {path.name for path in out.iterdir()} == {
        "config.yaml", "metrics.jsonl", "matrix.csv", "summary.json", "log.txt", "model.remix", "dreams", "checkpoints",
    }  # fmt: skip
    config = build_config(yaml.safe_load((out / "config.yaml").read_text()))
    assert config == config_of(tiny("remix", out))
    matrix = AccuracyMatrix.read(out / "matrix.csv")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["metrics"] == matrix.summary()
    assert summary["minutes"].keys() >= {"first task", "dream", "network", "remember", "evaluate"}
    assert summary["peak_memory_mib"] > 50
    assert ("peak_gpu_mib" in summary) == torch.cuda.is_available()
    assert sorted(path.name for path in (out / "dreams").iterdir()) == ["task-2.png", "task-3.png"]
    assert {path.name for path in (out / "checkpoints").iterdir()} == {"state.safetensors", "lock"}
    model = load_model(out / "model.remix")
    assert model.classes == ("0", "1", "2")
    assert model.memory is not None
    for name in ("last accuracy", "average incremental accuracy", "forgetting", str(out / "model.remix")):
        assert name in " ".join(text.split())


def test_every_line_of_metrics_is_an_event(finished):
    out, _ = finished
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    epochs = [event for event in events if event["event"] == "epoch"]
    config = config_of(tiny("remix", out))
    plan = plan_run(config, load_tasks(config.data, None))
    assert len(epochs) == sum(stage.epochs for task in plan.tasks for stage in task.stages)
    assert all(event["terms"] and event["seconds"] > 0 for event in epochs)
    results = [event for event in events if event["event"] == "task"]
    assert [len(event["accuracies"]) for event in results] == [1, 2, 3]
    assert results[-1]["peak_bytes"] > 0
    assert events[0]["event"] == "start"
    assert events[0]["hardware"]["processor"]
    steps = [event for event in events if event["event"] == "inversion" and event["task"] == 3]
    assert steps[-1]["phase"].endswith("refine")
    assert steps[-1]["step"] == steps[-1]["steps"] == 8
    assert steps[-1]["terms"].keys() >= {"features", "prior", "loss"}
    layers = [event["layers"] for event in events if event["event"] == "likelihood"]
    assert len(layers) == 3
    assert all(layer["gain"] >= 0 and layer["coordinates"] > 1 for layer in layers[-1])
    assert all(event["peak_bytes"] > 0 for event in events if event["event"] == "phase")
    phases = [event["phase"] for event in events if event["event"] == "phase" and event["task"] == 2]
    assert phases[:2] == ["prepare", "dream"]
    assert phases[-2:] == ["remember", "evaluate"]


def test_the_same_seed_gives_the_same_matrix_and_another_one_does_not(tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        assert go(tiny("finetune", tmp_path / name, seed=seed))[0] == 0
    one, two = ((tmp_path / name / "matrix.csv").read_bytes() for name in ("one", "two"))
    assert one == two
    weights = [load_model(tmp_path / name / "model.remix").classifier.state_dict() for name in ("one", "two", "other")]
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
    assert not all(torch.equal(value, weights[2][key]) for key, value in weights[0].items())


def test_a_folder_of_images_is_data_too(tmp_path):
    rng = np.random.default_rng(0)
    for name, colour in {"ant": 40, "bee": 90, "cat": 160, "dog": 230}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(10):
            pixels = np.clip(colour + rng.normal(0, 20, (30, 40)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{k}.png")
    words = [
        f"data.name={tmp_path / 'photos'}", "data.options={size: 8, channels: 1}", "data.tasks=2",
        "settings.first.epochs=1", "settings.later.epochs=1",
    ]  # fmt: skip
    status, text = go({"preset": "digits", "method": "finetune", "out": str(tmp_path / "run"), "set": words})
    assert status == 0
    assert "last accuracy" in text
    assert load_model(tmp_path / "run" / "model.remix").classes == ("ant", "bee", "cat", "dog")


# --- folders ---


def test_a_used_folder_is_refused(finished, tmp_path):
    out, _ = finished
    with pytest.raises(RunDirectoryError, match="holds a finished run already; add --resume"):
        go(tiny("remix", out))
    with pytest.raises(RunDirectoryError, match=r"settings\.samples: 30, now 31"):
        go(tiny("remix", out, "settings.samples=31"), resume=True)
    (tmp_path / "letter.txt").write_text("dear")
    for resume in (False, True):
        with pytest.raises(RunDirectoryError, match="is not empty and holds no run"):
            go(tiny("remix", tmp_path), resume=resume)
    with pytest.raises(RunDirectoryError, match="is a file"):
        go(tiny("remix", tmp_path / "letter.txt"))


def test_a_setting_that_is_newer_than_a_run_does_not_part_them(finished, tmp_path):
    out, _ = finished
    folder = tmp_path / "older"
    shutil.copytree(out, folder)
    values = yaml.safe_load((folder / "config.yaml").read_text())
    del values["settings"]["augment_replay"], values["data"]["options"]
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    assert RunDirectory(folder).read_config() == RunDirectory(out).read_config()
    status, text = go(tiny("remix", folder), resume=True)
    assert status == 0
    assert "is finished" in text


def test_a_finished_run_says_so(finished):
    out, _ = finished
    before = (out / "metrics.jsonl").read_bytes()
    status, text = go(tiny("remix", out), resume=True)
    assert status == 0
    assert "is finished" in text
    assert "last accuracy" in text
    assert (out / "metrics.jsonl").read_bytes() == before


# --- stopping ---


def test_a_loss_that_is_not_finite_ends_the_run_in_a_sentence(tmp_path):
    status, text = go(tiny("finetune", tmp_path / "run", "settings.later.lr=1e30", "settings.later.epochs=5"))
    assert status == 1
    assert "learning rate" in text
    assert "Traceback" not in text
    assert len(AccuracyMatrix.read(tmp_path / "run" / "matrix.csv")) == 1


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full (state.safetensors). What was saved before is whole; make room"),
        (errno.EDQUOT, "the disk is full (state.safetensors). What was saved before is whole; make room"),
        (errno.EROFS, "Read-only file system (state.safetensors). What was saved before is whole; set that right"),
    ],
)
def test_a_run_goes_on_after_a_disk_that_could_not_be_written(tmp_path, monkeypatch, number, said):
    original, calls = RunState.save, []

    def save(self, *args):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(number, os.strerror(number), "state.safetensors")
        original(self, *args)

    monkeypatch.setattr(RunState, "save", save)
    status, text = go(tiny("finetune", tmp_path / "run"))
    assert status == 1
    assert f"stopped: {said} and go on with: remix run digits" in text
    assert go(tiny("finetune", tmp_path / "run"), resume=True)[0] == 0


def test_a_run_goes_on_after_ctrl_c(tmp_path, monkeypatch):
    def epoch(self, report):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunMonitor, "epoch", epoch)
        status, text = go(tiny("finetune", tmp_path / "run"))
    assert status == 130
    assert "--resume" in text
    assert go(tiny("finetune", tmp_path / "run"), resume=True)[0] == 0


def test_a_generator_cannot_make_images_of_any_size():
    with pytest.raises(ValueError, match="sides divisible by 4, not 9 x 9"):
        create_method("rdfcil").check(create_backbone("resnet20", width=2, input_shape=(1, 9, 9)))


def test_one_network_and_one_engine_are_built(monkeypatch, tmp_path):
    built = Counter()
    for kind in (ConvNet, Engine):
        original = kind.__init__

        @functools.wraps(original)
        def counted(self, *args, kind=kind, original=original, **named):
            built[kind.__name__] += 1
            original(self, *args, **named)

        monkeypatch.setattr(kind, "__init__", counted)
    assert remix_run(tiny("remix", tmp_path / "run")) == 0
    assert built == {"ConvNet": 1, "Engine": 1}


def test_a_head_of_cosines_is_trained_and_saved(tmp_path):
    assert remix_run(tiny("remix", tmp_path / "run", "network.head=cosine")) == 0
    assert load_model(tmp_path / "run" / "model.remix").classifier.head.kind == "cosine"


def test_a_run_that_was_killed_while_it_wrote_its_settings_goes_on(tmp_path):
    out = tmp_path / "run"
    (out / "checkpoints").mkdir(parents=True)
    left = [out / ".config.yaml.1a2b3c4d.tmp", out / "checkpoints" / ".replay.safetensors.00000000.tmp"]
    for file in left:
        file.write_bytes(b"da")
    assert go(tiny("finetune", out), resume=True)[0] == 0
    assert not any(file.exists() for file in left)


def test_a_resumed_run_knows_the_accuracy_so_far(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(RunMonitor, "_show", lambda self, what, work: shown.append(self.accuracy))
    begin = RunMonitor.start_task

    def stop(self, index, goes_on):
        if index == 1:
            raise KeyboardInterrupt
        begin(self, index, goes_on)

    with monkeypatch.context() as patch:
        patch.setattr(RunMonitor, "start_task", stop)
        assert go(tiny("finetune", tmp_path / "run"))[0] == 130
    shown.clear()
    assert go(tiny("finetune", tmp_path / "run"), resume=True)[0] == 0
    assert shown[0].endswith(" %")


def test_missing_data_are_said_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "cifar100-mini", "--out", str(tmp_path / "run")])
    assert "where is cifar100?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_damaged_checkpoints_are_one_sentence(tmp_path, capsys, monkeypatch):
    def epoch(self, report):
        if self.task == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunMonitor, "epoch", epoch)
        assert go(tiny("finetune", tmp_path / "run"))[0] == 130
    state = tmp_path / "run" / "checkpoints" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        go(tiny("finetune", tmp_path / "run"), resume=True)


# --- settings, and folders of one's own ---


def test_all_settings_are_shown_as_yaml_that_can_be_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["run", "digits", "--method", "lwf", "--tasks", "2", "--seed", "3", "--show-settings"])
    shown = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine.yaml").write_text(shown)
    assert resolve("mine.yaml") == resolve("digits", method="lwf", seed=3, assignments=["data.tasks=2"])


def test_what_is_chosen_for_a_folder_is_said_and_saved(tmp_path, capsys, monkeypatch, refusal):
    make_folder(tmp_path / "photos", classes=tuple("abcde"), each=6, size=(120, 90))
    monkeypatch.chdir(tmp_path)
    main(["run", "photos", "--tasks", "2", "--method", "finetune", "--save-preset", "mine.yaml"])
    shown = " ".join(capsys.readouterr().out.split())
    for part in (
        "photos: 5 classes, 30 images; a fifth of every class is held out to test on.",
        "They arrive in 2 tasks of 2 classes, 3 in the first, in alphabetical order",
        "Images are brought to 64 x 64 pixels, colour; the shorter side of most is 90.",
        "The network is resnet32 of width 8 and begins untrained",
        "remix run mine.yaml",
    ):
        assert part in shown
    assert resolve("mine.yaml") == resolve("photos", tasks=2, method="finetune")
    assert resolve("mine.yaml", method="lda") == resolve("photos", tasks=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml", "photos"]
    assert "mine.yaml exists already" in refusal("run", "photos", "--save-preset", "mine.yaml")
    assert "takes a name such as mine.yaml" in refusal("run", "photos", "--save-preset", "mine")
    assert "there is no folder none" in refusal("run", "photos", "--save-preset", "none/mine.yaml")


@pytest.mark.slow
def test_a_folder_is_run_to_its_end(tmp_path, monkeypatch):
    make_folder(tmp_path / "photos", classes=tuple("abcd"), each=6)
    monkeypatch.chdir(tmp_path)
    quick = ["settings.first.epochs=1", "settings.later.epochs=1", "network.options.width=2"]
    main(["run", "photos/", "--tasks", "2", "--method", "finetune", "--set", *quick])
    assert RunDirectory(tmp_path / "runs" / "photos-finetune-seed0").read_summary()["tasks"] == 2
