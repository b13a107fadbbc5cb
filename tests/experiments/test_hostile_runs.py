"""Run folders from elsewhere: nothing in them hangs a command, crashes it, or changes a file outside."""

import json
import os
import shutil
import signal
from contextlib import suppress

import pytest
import torch
from tiny_runs import remix_run, run_saving, tiny
from written_runs import write_run

from remix.cli import main
from remix.experiments.run_monitor import RunMonitor
from remix.experiments.run_state import Saving
from remix.statistics import DamagedFileError, read_file, write_file

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
DEEP = "[" * 5000


@pytest.fixture(autouse=True)
def _no_hang():
    def stop(*_):
        raise TimeoutError("the command hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("content", [BOMB, DEEP, "a: [1", "seed: 2020-01-01", f"seed: 0x{'f' * 9999}", "? [1]\n: 2"])
@pytest.mark.parametrize("command", ["compare", "report", "run", "preset"])
def test_a_configuration_that_is_none_is_a_sentence(tmp_path, refusal, command, content):
    run = write_run(tmp_path / "run")
    (run / "config.yaml").write_text(content)
    words = {
        "compare": ["compare", run],
        "report": ["report", run, "--out", tmp_path / "x.html"],
        "run": ["run", "digits", "--out", run, "--resume"],
        "preset": ["run", run / "config.yaml", "--out", tmp_path / "new"],
    }
    said = refusal(*words[command])
    assert "config.yaml" in said
    assert len(said) < 400
    assert said.count("\n") == 1


@pytest.mark.parametrize("value", [DEEP, BOMB, "2020-13-01", "0x" + "f" * 9999, "{a: " * 99, "!!binary aaaa", "\ud800"])
def test_a_value_that_is_none_is_a_sentence(tmp_path, refusal, value):
    said = refusal("run", "digits", "--dry-run", "--set", f"seed={value}")
    assert "--set 'seed'" in said
    assert len(said) < 400


@pytest.mark.parametrize("word", ["a." * 5000 + "b=1", "a" * 10**5 + "=1", "seed=" + "a" * 10**5, "\x1b[2J=1"])
def test_a_setting_that_is_none_is_a_short_sentence(refusal, word):
    said = refusal("run", "digits", "--dry-run", "--set", word)
    assert len(said) < 600
    assert "\x1b" not in said


@pytest.mark.parametrize("change", [{"seed": float("inf")}, {"tasks": 1e400}, {"peak_memory_mib": float("-inf")}])
def test_a_summary_of_infinite_numbers_is_a_sentence(tmp_path, refusal, change):
    run = write_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text()) | change
    (run / "summary.json").write_text(json.dumps(summary))
    assert "summary.json is damaged" in refusal("compare", run)
    (run / "summary.json").write_text(DEEP)
    assert "summary.json is" in refusal("compare", run)


def test_an_infinite_seed_is_a_sentence(tmp_path, refusal):
    run = write_run(tmp_path / "run")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("\nseed: 0\n", "\nseed: .inf\n"))
    assert "not the configuration of a run" in refusal("compare", run)


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "metrics.jsonl", "matrix.csv", "dreams/task-2.png"])
def test_pipes_in_a_run_do_not_hang_its_readers(tmp_path, name, capsys):
    whole = write_run(tmp_path / "whole", seed=1)
    run = write_run(tmp_path / "run")
    (run / "summary.json").unlink()  # the matrix is looked at only if it is not there
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for words in (["compare", whole, run], ["report", whole, run, "--out", tmp_path / "report.html"]):
        with suppress(SystemExit):
            main([str(word) for word in words])
    assert "Traceback" not in capsys.readouterr().err


def test_a_pipe_for_a_preset_does_not_hang(tmp_path, refusal):
    os.mkfifo(tmp_path / "fifo.yaml")
    assert "a pipe" in refusal("run", tmp_path / "fifo.yaml")
    assert "a device" in refusal("run", _link(tmp_path / "zero.yaml", "/dev/zero"))


def _link(path, target):
    path.symlink_to(target)
    return path


# --- going on with a run from elsewhere ---


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was interrupted in the second task: within its dreams, and in its training."""
    folder = tmp_path_factory.mktemp("stopped")

    def stop(*_):
        raise KeyboardInterrupt

    def epoch(self, report, original=RunMonitor.epoch):
        original(self, report)
        if self.task == 1 and report.epoch == 1:
            raise KeyboardInterrupt

    for name, (what, how) in {"dreaming": ("inversion", stop), "training": ("epoch", epoch)}.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunMonitor, what, how)
            assert run_saving(tiny("remix", folder / name), Saving(0.0, 0.0, 0.0)) == 130
    return folder


def again(out, **options) -> int:
    return remix_run(tiny("remix", out), resume=True, **options)


@pytest.mark.parametrize("name", ["metrics.jsonl", "log.txt", "checkpoints/lock"])
def test_pipes_and_links_in_a_run_are_not_written_to(stopped, tmp_path, name):
    run, other = shutil.copytree(stopped / "training", tmp_path / "run"), tmp_path / "other"
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(OSError, match="a pipe, not a file"):
        again(run)
    (run / name).unlink()
    other.write_text("mine")
    (run / name).symlink_to(other)
    with pytest.raises(OSError, match="a link, not a file"):
        again(run)
    assert other.read_text() == "mine"


@pytest.mark.parametrize("name", ["state", "replay"])
def test_a_checkpoint_that_is_no_file_is_not_taken_for_none(stopped, tmp_path, name):
    run = shutil.copytree(stopped / "training", tmp_path / "run")
    file = run / "checkpoints" / f"{name}.safetensors"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises((ValueError, OSError), match=name):
        again(run)


def changed(file, kind, change) -> None:
    """A file whose checksums are sound, of other content."""
    version = 2 if kind == "run state" else 1
    tensors, content = read_file(file, kind, version)
    change(tensors, content)
    write_file(file, kind, version, tensors, content)


def put(path, value):
    *parents, last = path.split(".")

    def change(_, content):
        for parent in parents:
            content = content[parent]
        if value is None:
            del content[last]
        else:
            content[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *[(f"{key}", None) for key in ("buffer", "task", "run", "engine")],
        *[(f"engine.{key}", None) for key in ("method", "student", "teacher", "memory", "modules", "done", "epoch")],
        *[(f"run.{key}", None) for key in ("metrics", "seconds", "threads", "matrix")],
        *[("engine.done", value) for value in (99, -1, 1, 0, "2", 2.5, [1])],
        *[("engine.epoch", value) for value in (10**6, -1, "x")],
        *[("engine.student", value) for value in ([1], [1, 1, 1], ["a"], 3)],
        *[("engine.optimiser", value) for value in (-1, 10**9, "x")],
        *[("run.metrics", value) for value in (-1, 1.5, "x")],
        *[("run.seconds", value) for value in ({"dream": float("nan")}, {"dream": -1}, [1], {"dream": "x"})],
        *[("run.matrix", value) for value in ({}, {"counts": [5], "correct": [[4]]}, {"counts": [], "correct": []}, 3)],
        *[("engine", value) for value in ([], "x", 3)],
    ],
)
def test_a_state_of_wrong_content_is_a_sentence(stopped, tmp_path, path, value):
    run = shutil.copytree(stopped / "training", tmp_path / "run")
    changed(run / "checkpoints" / "state.safetensors", "run state", put(path, value))
    with pytest.raises(ValueError, match=r"not of this run|damaged|not an accuracy matrix") as refused:
        again(run)
    assert "\n" not in str(refused.value)


def drop_or_grow(name, grow):
    def change(tensors, _):
        if grow:
            tensors[name] = torch.zeros(3, 3)
        else:
            del tensors[name]

    return change


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("start", ["generator", "counts", "student/", "teacher/", "memory/", "optimiser/"])
def test_a_state_of_wrong_tensors_is_a_sentence(stopped, tmp_path, start, grow):
    run = shutil.copytree(stopped / "training", tmp_path / "run")
    file = run / "checkpoints" / "state.safetensors"
    name = next(name for name in read_file(file, "run state", 2)[0] if name.startswith(start))
    changed(file, "run state", drop_or_grow(name, grow))
    with pytest.raises(ValueError, match=r"not of this (run|stage)"):
        again(run)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *[(key, None) for key in ("phases", "number", "kept", "loop", "history", "run")],
        *[("number", value) for value in (-1, 99, "x", 1.5)],
        *[("kept", value) for value in (-1, 10**9, "x")],
        *[("loop", value) for value in ([], "x", {}, 3)],
        *[("history", value) for value in ([], {"x": 3})],
        ("phases", 3),
        ("run", []),
    ],
)
def test_an_inversion_of_wrong_content_is_a_sentence(stopped, tmp_path, path, value):
    run = shutil.copytree(stopped / "dreaming", tmp_path / "run")
    (file,) = (run / "checkpoints").glob("inversion-*.safetensors")
    changed(file, "inversion", put(path, value))
    with pytest.raises(ValueError, match=r"."):
        again(run)


def test_an_offset_beyond_the_end_does_not_make_a_file_longer(stopped, tmp_path):
    run = shutil.copytree(stopped / "training", tmp_path / "run")
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-5])  # a line was lost with the power
    changed(run / "checkpoints" / "state.safetensors", "run state", put("run.metrics", 10**12))
    assert again(run) == 0
    assert metrics.stat().st_size < 10**6
    assert all(json.loads(line)["event"] for line in metrics.read_text().splitlines())


@pytest.mark.parametrize("done", [99, 2, 1])
def test_a_state_beyond_the_last_task_is_a_sentence(tmp_path, done):
    options = tiny("finetune", tmp_path / "run")
    assert run_saving(options, Saving(0.0, 0.0, 0.0)) == 0
    (tmp_path / "run" / "summary.json").unlink()
    changed(tmp_path / "run" / "checkpoints" / "state.safetensors", "run state", put("engine.done", done))
    with pytest.raises(DamagedFileError, match="not of this run: see phase"):
        remix_run(options, resume=True)


def test_the_state_of_another_run_is_refused(stopped, tmp_path):
    options = tiny("remix", tmp_path / "run", "data.order=seed:1")
    shutil.copytree(stopped / "training" / "checkpoints", tmp_path / "run" / "checkpoints")
    with pytest.raises(DamagedFileError, match="not of this run: see classes"):
        remix_run(options, resume=True)
