"""`remix inspect`: every byte of the file is accounted for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from remix.deploy.inspection import KINDS, inspect_file
from remix.learning import LearnStep, save_model
from remix.statistics import Memory, Selectors, batchnorm_points, measure_layers

FILES = Path(__file__).parent.parent / "learning" / "files"


def test_the_parts_add_up_to_the_file(model_file):
    found = inspect_file(model_file)
    assert sum(part.bytes for part in found.parts) == found.bytes == model_file.stat().st_size
    assert sum(total.bytes for total in found.totals()) == found.bytes
    assert {part.kind for part in found.parts} <= set(KINDS)


def test_every_kind_is_told_apart(model, tmp_path):
    memory = Memory()
    backbone = model.classifier.backbone
    images = torch.randn(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    memory.layers = measure_layers(backbone, [images], batchnorm_points(backbone), kinds=("laplace", "dense"))
    memory.gaussians, memory.classes, memory.tasks = model.memory.gaussians, model.memory.classes, model.memory.tasks
    vectors = {name: torch.ones(4, 2, 16) for name in ("bias", "scale", "shift", "mean", "variance")}
    memory.selectors = Selectors((0, 1, 2, 3), torch.zeros(4, 32, 16), **vectors)
    save_model(tmp_path / "all.remix", replace(model, memory=memory))
    found = inspect_file(tmp_path / "all.remix")
    assert [total.kind for total in found.totals()] == list(KINDS)
    assert sum(total.bytes for total in found.totals()) == found.bytes


def test_classes_and_when_each_was_learned(model, tmp_path):
    more = LearnStep(("zero",), (5,), "remix", {}, ("zero",), date="2026-12-01T00:00:00+00:00")
    save_model(tmp_path / "m.remix", replace(model, history=(*model.history, more)))
    first, *_, last = inspect_file(tmp_path / "m.remix").classes
    assert (first.name, first.images, first.learned[:10], first.extended) == (
        "zero", 142, "2026-11-15", ("2026-12-01T00:00:00+00:00",),
    )  # fmt: skip
    assert (last.name, last.learned[:10], last.extended) == ("drei ³", "2026-11-16", ())
    old = inspect_file(FILES / "model-v1.remix").classes
    assert [entry.learned for entry in old] == ["task 1", "task 1", "task 2", "task 2"]


def test_a_class_of_few_images_is_a_warning(model, tmp_path, remix):
    memory = Memory()
    step = LearnStep(model.classes, (142, 1, 142, 146), "remix")
    save_model(tmp_path / "m.remix", replace(model, memory=memory, history=(step,)))
    assert "WARNING: fewer than 10 images of one:" in remix("inspect", tmp_path / "m.remix")[1]


def test_the_command(remix, model_file):
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
