"""`remix dream` as a person uses it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from remix.cli import main
from remix.deploy.dream_files import load_dream
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.statistics import read_file

FEW = ["--count", "3", "--steps", "6"]


def dream(trained, out: Path, *options: object) -> Path:
    main(["dream", str(trained.model), "--out", str(out), *map(str, options or FEW)])
    return out


def test_writes_a_grid_the_tensors_and_a_plot_of_the_terms(trained, tmp_path, capsys):
    out = dream(trained, tmp_path / "new" / "grid.png", "--classes", "one,three", "--count", 5, "--steps", 60)
    said = capsys.readouterr().out
    assert sorted(path.name for path in out.parent.iterdir()) == ["grid-terms.png", "grid.png", "grid.safetensors"]
    assert all(path.name in said for path in out.parent.iterdir())
    saved = load_dream(out.with_suffix(".safetensors"))
    assert saved.images.shape == (10, 1, 8, 8)
    assert saved.images.dtype == torch.float32
    assert float(saved.images.min()) >= 0
    assert float(saved.images.max()) <= 1
    assert saved.classes == trained.names
    assert saved.labels.bincount(minlength=4).tolist() == [0, 5, 0, 5]
    assert saved.about["request"]["seed"] == 0
    assert saved.about["finished"]
    right = saved.about["read_right"]
    assert right["one"] + right["three"] >= 8  # the network recognises most of its own dreams
    for name in ("one", "three"):
        assert f"{right[name]} of 5 as {name}" in said
    for picture in (out, tmp_path / "new" / "grid-terms.png"):
        with Image.open(picture) as image:
            assert min(image.size) > 100


def test_the_expected_time_is_said_before_it_begins(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("remix.deploy.dream_plan.DreamPlan.expected_seconds", lambda plan: 61.0)
    dream(trained, tmp_path / "grid.png")
    said = capsys.readouterr().out
    assert said.index("this takes about 1 min 01 s here (--steps") < said.index("what the network itself reads")


@pytest.mark.parametrize("strategy", ["layerwise", "pixels", "pyramid", "generator"])
def test_more_steps_are_expected_to_take_as_much_longer(trained, strategy, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr("remix.deploy.dream_plan.time.perf_counter", lambda: float(next(ticks)))
    model = trained.load()
    short, long = (
        make_plan(model, DreamOptions(count=2, strategy=strategy, steps=steps)).expected_seconds()
        for steps in (500, 1000)
    )
    assert long == pytest.approx(2 * short, rel=0.02)
    # A pass of 8 images takes a second here, and so much does a step of 8 images.
    if strategy == "pixels":
        assert short == pytest.approx(500)


@pytest.mark.parametrize("strategy", ["pixels", "pyramid", "generator"])
def test_every_strategy_dreams_every_class(trained, tmp_path, strategy):
    out = dream(trained, tmp_path / "grid.png", "--strategy", strategy, *FEW, "--batch", "6")
    saved = load_dream(out.with_suffix(".safetensors"))
    assert saved.about["request"]["strategy"] == strategy
    assert saved.about["request"]["settings"]["prior"]["kind"] == "laplace"
    if strategy != "generator":  # which may not have found every class yet
        assert saved.labels.bincount().tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("prior", ["laplace-dct", "laplace", "dense", "diagonal", "none"])
@pytest.mark.parametrize("form", ["nll", "kl"])
def test_every_prior_dreams_in_every_form(trained, tmp_path, prior, form):
    out = dream(trained, tmp_path / "grid.png", "--prior", prior, "--form", form, "--count", 6, "--steps", 3)
    settings = load_dream(out.with_suffix(".safetensors")).about["request"]["settings"]
    assert (settings["prior"]["kind"], settings["prior"]["form"]) == (prior, form)


def test_the_seed_decides_the_dream(trained, tmp_path):
    images = [
        load_dream(dream(trained, tmp_path / f"{i}.png", *FEW, "--seed", seed).with_suffix(".safetensors")).images
        for i, seed in enumerate((1, 1, 2))
    ]
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


def test_weights_alone_work_and_say_what_they_lack(trained, tmp_path, capsys):
    options = ["dream", *trained.network]
    main([*options, "--classes", "0,2", *FEW, "--out", str(tmp_path / "grid.png")])
    said = capsys.readouterr().out
    assert "only the statistics of BatchNorm layers are known" in said
    assert "pixels" in said
    assert "diagonal" in said
    saved = load_dream(tmp_path / "grid.safetensors")
    assert saved.labels.tolist() == [0, 2] * 3
    main([*options, "--names", ",".join(trained.names), "--classes", "two", *FEW, "--out", str(tmp_path / "named.png")])
    assert load_dream(tmp_path / "named.safetensors").labels.tolist() == [2, 2, 2]


def test_weights_with_a_file_of_statistics_dream_as_the_model_does(trained, tmp_path):
    memory = trained.load().memory
    memory.save(tmp_path / "memory.safetensors")
    statistics = ("--statistics", str(tmp_path / "memory.safetensors"))
    named = ("--classes", "zero,three", *FEW)
    main(["dream", *trained.network, *statistics, *named, "--out", str(tmp_path / "grid.png")])
    dream(trained, tmp_path / "model.png", *named)
    one, other = load_dream(tmp_path / "grid.safetensors"), load_dream(tmp_path / "model.safetensors")
    assert torch.equal(one.images, other.images)


# --- refusals: before any work, in a sentence ---


def test_what_cannot_be_dreamed_is_refused_in_a_sentence(trained, tmp_path, refusal):
    start = ("dream", trained.model, "--out", tmp_path / "grid.png")
    for options, expected in (
        (("--classes", "zero,tow"), "no class 'tow' (did you mean 'two'?); the model knows: zero, one, two, three"),
        (("--classes", "one,one"), "asked for twice"),
        (("--strategy", "sleep"), "unknown strategy 'sleep'; there are: layerwise, pixels, pyramid, generator"),
        (("--prior", "gamma"), "unknown prior 'gamma'; there are: none, diagonal, laplace, laplace-dct, dense"),
        (("--form", "map"), "unknown form of a prior 'map'; there are: nll, typical, kl"),
        (("--prior-weight", "-1"), "must not be negative"),
        (("--count", "0"), "--count must be at least 1"),
        (("--micro-batch", "0"), "--micro-batch must be at least 1"),
        (("--steps", "0"), "--steps must be at least 1"),
        (("--seed", "-3"), "--seed must not be negative"),
        (("--device", "tpu9"), "--device tpu9 cannot be used"),
        (("--form", "kl", "--classes", "one", "--count", "1"), "at least 2 images at a time, got 1"),
        (("--form", "kl", "--batch", "1"), "at least 2 images at a time, got 1"),
        (("--form", "kl", "--count", "2", "--classes", "one"), "raise --count, or use typical or nll"),
        (("--resume",), "there is nothing to resume"),
        (("--resume", "--overwrite"), "give one of them"),
        (("--backbone", "resnet32"), "--backbone goes with --weights"),
        (("--weights", trained.weights), "not both"),
        (("--statistics", "some.safetensors"), "--statistics goes with --weights"),
    ):
        assert expected in refusal(*start, *options)
    assert not list(tmp_path.iterdir())


def test_files_that_do_not_fit_are_refused_in_a_sentence(trained, tmp_path, refusal):
    out = tmp_path / "grid.png"
    assert "must name a picture that ends with .png" in refusal("dream", trained.model, "--out", tmp_path / "grid.jpg")
    assert "no file" in refusal("dream", tmp_path / "none.remix", "--out", out)
    assert "name a model file" in refusal("dream", "--out", out)
    assert "give --backbone" in refusal("dream", "--weights", trained.weights, "--out", out)
    assert "no weights file" in refusal("dream", "--weights", "no.safetensors", "--backbone", "convnet8", "--out", out)
    assert "safetensors file, but not one that remix wrote" in refusal("dream", trained.weights, "--out", out)
    bare = ("dream", *trained.network, "--out", out)
    assert "strategy layerwise needs class Gaussians" in refusal(*bare, "--strategy", "layerwise")
    assert "no 'laplace' statistics, only: none, diagonal" in refusal(*bare, "--prior", "laplace")
    assert "--names has 2 names, but the head" in refusal(*bare, "--names", "a,b")
    assert "--mean must be numbers" in refusal(*bare, "--mean", "much")
    assert "no option 'depth'" in refusal(*bare, "--options", "depth=3")
    assert not list(tmp_path.iterdir())


def test_what_exists_is_kept_unless_asked(trained, tmp_path, refusal):
    out = tmp_path / "grid.png"
    (tmp_path / "grid.safetensors").write_text("precious")
    message = refusal("dream", trained.model, "--out", out, *FEW)
    assert "grid.safetensors" in message
    assert "--overwrite" in message
    assert (tmp_path / "grid.safetensors").read_text() == "precious"
    dream(trained, out, *FEW, "--overwrite")
    assert load_dream(tmp_path / "grid.safetensors").about["finished"]


# --- Ctrl-C and going on ---


@pytest.fixture
def pressed(monkeypatch):
    """Makes the engine stop as if Ctrl-C had been pressed after so many steps."""

    def after(steps: int) -> None:
        from remix.support.interrupts import PoliteInterrupt

        left = [steps]

        def check(self) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        monkeypatch.setattr(PoliteInterrupt, "check", check)

    return after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "steps", "images"),
    [("layerwise", 1, 0), ("layerwise", 13, 6), ("pixels", 9, 12), ("pyramid", 4, 6), ("generator", 2, None)],
)
def test_an_interrupted_dream_goes_on_to_the_same_bits(trained, tmp_path, pressed, capsys, strategy, steps, images):
    options = [*FEW, "--strategy", strategy, "--batch", "6"]
    whole = load_dream(dream(trained, tmp_path / "whole.png", *options).with_suffix(".safetensors"))
    out = tmp_path / "grid.png"
    pressed(steps)
    with pytest.raises(SystemExit) as stopped:
        dream(trained, out, *options)
    assert stopped.value.code == 130
    said = capsys.readouterr().out
    assert "stopped in" in said
    assert "--resume" in said
    assert (tmp_path / "grid-checkpoint.safetensors").is_file()
    assert (tmp_path / "grid-terms.png").is_file()
    if images:
        assert len(load_dream(tmp_path / "grid.safetensors").images) == images
    elif images == 0:
        assert "no image is ready yet" in said
        assert not out.exists()
    dream(trained, out, *options, "--resume")
    resumed = load_dream(tmp_path / "grid.safetensors")
    assert torch.equal(resumed.images, whole.images)
    assert torch.equal(resumed.labels, whole.labels)
    assert resumed.about["finished"]
    assert not (tmp_path / "grid-checkpoint.safetensors").exists()


def test_only_the_same_run_goes_on(trained, tmp_path, pressed, refusal):
    out = tmp_path / "grid.png"
    pressed(3)
    with pytest.raises(SystemExit):
        dream(trained, out, *FEW)
    again = ("dream", trained.model, "--out", out, *FEW)
    assert "--resume goes on with that run" in refusal(*again)
    assert "seed was 0, is 1" in refusal(*again, "--resume", "--seed", "1")
    assert "prior.form was typical, is nll" in refusal(*again, "--resume", "--form", "nll")
    checkpoint = tmp_path / "grid-checkpoint.safetensors"
    sound = checkpoint.read_bytes()
    checkpoint.write_bytes(sound[: len(sound) // 2])
    assert "damaged" in refusal(*again, "--resume")


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_saves_and_says_how_to_go_on(trained, tmp_path):
    """The real signal, in a process of its own, in the middle of a long run."""
    out = tmp_path / "grid.png"
    command = [sys.executable, "-m", "remix", "dream", trained.model, "--out", out, "--strategy", "pixels"]
    process = subprocess.Popen(
        [*map(str, command), "--steps", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "step 1 of" in line:
            break
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=600)
    said = "".join(lines) + rest
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "stopping after this step" in said
    assert "to go on: remix dream" in said
    assert len(load_dream(tmp_path / "grid.safetensors").images) == 32
    _, content = read_file(tmp_path / "grid-checkpoint.safetensors", "dream-checkpoint", 1)
    assert content["record"]["loop"]["step"] >= 1


def test_numbers_that_stop_being_finite_leave_the_last_good_state(trained, tmp_path, refusal, monkeypatch):
    from remix.deploy import dream_plan

    def huge(*arguments):
        settings = settings_for(*arguments)
        return replace(settings, schedule=replace(settings.schedule, rate=1e30))

    settings_for = dream_plan.settings_for
    monkeypatch.setattr(dream_plan, "settings_for", huge)
    message = refusal("dream", trained.model, "--strategy", "pixels", "--out", tmp_path / "grid.png")
    assert "inversion stopped in step" in message
    assert [path.name for path in tmp_path.iterdir()] == ["grid-checkpoint.safetensors"]


def test_a_checkpoint_is_written_on_the_way(trained, tmp_path, monkeypatch):
    from remix.deploy import dream_files

    monkeypatch.setattr(dream_files, "_SAVE_EVERY", 0.0)
    written = []
    save = dream_files.DreamFiles.save_checkpoint
    monkeypatch.setattr(
        dream_files.DreamFiles, "save_checkpoint", lambda self, *parts: (written.append(1), save(self, *parts))
    )
    dream(trained, tmp_path / "grid.png", *FEW)
    assert len(written) > 5
    assert not (tmp_path / "grid-checkpoint.safetensors").exists()


def test_a_dream_that_is_damaged_or_foreign_is_refused(trained, tmp_path):
    path = dream(trained, tmp_path / "grid.png").with_suffix(".safetensors")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        load_dream(path)
    with pytest.raises(ValueError, match="'model', expected 'dream'"):
        load_dream(trained.model)
