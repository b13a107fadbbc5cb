"""`remix export`: every format, and nothing is left of what fails."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest

from remix.deploy import export as exporting
from remix.deploy.export import SUFFIXES, export

FORMATS = list(SUFFIXES)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written(remix, model_file, format):
    before = model_file.read_bytes()
    status, out, err = remix("export", model_file, "--format", format)
    assert (status, err) == (0, "")
    file = model_file.with_suffix(SUFFIXES[format])
    assert str(file) in out
    assert "checked with " + {"onnx": "onnxruntime", "torch": "torch.export"}.get(format, format) in out
    assert "logits differ by at most" in out
    assert model_file.read_bytes() == before
    made = {file.name} | ({"model.json"} if format == "safetensors" else set())
    assert set(os.listdir(file.parent)) == {"model.remix"} | made
    status, _, err = remix("export", model_file, "--format", format)
    assert status == 2
    assert "is there already: --overwrite replaces it" in err
    assert remix("export", model_file, "--format", format, "--overwrite")[0] == 0


def test_the_ending_of_the_file_says_the_format(remix, model_file):
    target = model_file.with_name("plain.safetensors")
    assert remix("export", model_file, "--out", target)[::2] == (0, "")
    assert {target, target.with_suffix(".json")} <= set(target.parent.iterdir())
    for words, said in (((), "--format onnx, torch, safetensors, or --out"), (("--out", "a.jpg"), ".onnx")):
        status, _, err = remix("export", model_file, *words)
        assert status == 2
        assert said in err


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_leaves_the_file_that_was_there(remix, model_file, format, monkeypatch):
    target = model_file.with_suffix(SUFFIXES[format])
    target.write_text("what was there")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, err = remix("export", model_file, "--format", format, "--overwrite")
    assert status == 2
    assert "No space left on device" in err
    assert target.read_text() == "what was there"
    assert set(os.listdir(target.parent)) == {"model.remix", target.name}


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_may_not_be_so_long_is_a_sentence(model_file, format):
    def short_of_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    words = [sys.executable, "-m", "remix", "export", str(model_file), "--format", format]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=short_of_room, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "remix export: [Errno 27] File too large\n"
    assert os.listdir(model_file.parent) == ["model.remix"]


def test_ctrl_c_leaves_nothing(remix, model_file, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "_compare", interrupt)
    status, _, err = remix("export", model_file, "--format", "safetensors")
    assert status == 130
    assert "interrupted, nothing was written" in err
    assert os.listdir(model_file.parent) == ["model.remix"]


def test_what_a_person_can_set_right_is_said(remix, model_file, model, monkeypatch, tmp_path):
    assert "--format knows onnx, torch, safetensors, got 'tf'" in remix("export", model_file, "--format", "tf")[2]
    assert "must end in .onnx" in remix("export", model_file, "--format", "onnx", "--out", "m.pb")[2]
    assert "no file" in remix("export", tmp_path / "none.remix", "--format", "torch")[2]
    with pytest.raises(ValueError, match="--format knows"):
        export(model, "tf", tmp_path / "m.tf")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    status, _, err = remix("export", model_file, "--format", "onnx")
    assert status == 2
    assert "needs onnx and onnxscript, which are not installed: pip install 'remix-dfcil[onnx]'" in err
    assert os.listdir(model_file.parent) == ["model.remix"]
