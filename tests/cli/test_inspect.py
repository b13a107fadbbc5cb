"""`remix inspect` tells what a model file holds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from remix.deploy.inspection import inspect_file
from remix.learning import LearnStep, save_model
from remix.statistics import Memory


def test_a_class_of_few_images_is_a_warning(model, tmp_path, remix):
    memory = Memory()
    step = LearnStep(model.classes, (142, 1, 142, 146), "remix")
    save_model(tmp_path / "m.remix", replace(model, memory=memory, history=(step,)))
    assert "WARNING: fewer than 10 images of one:" in remix("inspect", tmp_path / "m.remix")[1]


def test_content_tensors_and_json_are_those_of_the_file(remix, model_file):
    status, out, err = remix("inspect", model_file)
    assert (status, err) == (0, "")
    for words in ("convnet8 (width=4)", "8 x 8 pixels, grey", "drei ³", "2026-11-16 12:00", "No image is stored.",
                  "class Gaussians", "the first 2 are frozen", "new classes, held out 100.0%"):  # fmt: skip
        assert words in out
    listed = remix("inspect", model_file, "--tensors")[1]
    rows = [line.split() for line in listed.splitlines() if "network/backbone.convolutions.0.conv.weight" in line]
    assert rows[0][-6:] == ["F32", "(4,", "1,", "3,", "3)", "144"]
    assert "listed above" in listed
    content = json.loads(remix("inspect", model_file, "--json")[1])
    assert content["format_version"] == 2
    assert content["images_stored"] == 0
    assert sum(kind["bytes"] for kind in content["kinds"].values()) == content["bytes"]
    assert len(content["tensors"]) == 64
    assert content["preprocessing"]["size"] == 8


def test_a_file_without_statistics_and_a_damaged_one(remix, model, tmp_path):
    save_model(tmp_path / "bare.remix", replace(model, memory=None, history=()))
    out = remix("inspect", tmp_path / "bare.remix")[1]
    assert "not told" in out
    assert "class Gaussians" not in out
    data = bytearray((tmp_path / "bare.remix").read_bytes())
    data[-5] ^= 1
    (tmp_path / "bare.remix").write_bytes(data)
    status, _, err = remix("inspect", tmp_path / "bare.remix")
    assert status == 2
    assert "is damaged: the checksum of" in err
    with pytest.raises(FileNotFoundError):
        inspect_file(tmp_path / "none.remix")
