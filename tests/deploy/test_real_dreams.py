"""A published ResNet-34 and photographs, through the commands. Runs where REMIX_DATA names the data."""

from __future__ import annotations

import shutil

import pytest

from remix.cli import main
from remix.deploy.dream_files import load_dream
from remix.learning import load_model

pytestmark = pytest.mark.slow

CLASSES = ("church", "golf_ball", "tench")


@pytest.fixture
def photographs(data_dir, tmp_path):
    """Ten photographs of three classes, and the weights."""
    weights = data_dir / "weights" / "resnet34_imagenette10_fp16.safetensors"
    train = data_dir / "imagenette" / "train"
    if not weights.exists() or not train.exists():
        pytest.skip(f"{weights} or {train} is not there")
    for name in CLASSES:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for file in sorted((train / name).iterdir())[:10]:
            shutil.copy(file, tmp_path / "photos" / name)
    return tmp_path / "photos", weights


def test_measure_and_dream(photographs, tmp_path, capsys):
    folder, weights = photographs
    model = tmp_path / "photos.remix"
    network = ("--weights", str(weights), "--backbone", "resnet34", "--size", "64")
    # Fitting Laplace covariances to that few photographs would take most of the time; digits have them.
    main(["measure", str(folder), *network, "--kinds", "dense", "--out", str(model)])
    said = capsys.readouterr().out
    # Of the head's ten outputs, which follow ImageNet's order, those three were found that have photographs.
    assert load_model(model).classes[0] == "tench"
    assert "output 1" in said
    asked = ("--classes", "tench,church", "--count", "2", "--steps", "4", "--prior", "dense")
    main(["dream", str(model), *asked, "--out", str(tmp_path / "a.png")])
    dream = load_dream(tmp_path / "a.safetensors")
    assert dream.images.shape == (4, 3, 64, 64)
    assert dream.labels.tolist() == [0, 4, 0, 4]
    assert dream.about["finished"]


def test_weights_alone_are_dreamed_into_what_they_recognise(photographs, tmp_path):
    _, weights = photographs
    network = ("--weights", str(weights), "--backbone", "resnet34", "--size", "64")
    asked = ("--classes", "0,9", "--count", "2", "--steps", "30")
    main(["dream", *network, *asked, "--out", str(tmp_path / "b.png")])
    assert sum(load_dream(tmp_path / "b.safetensors").about["read_right"].values()) >= 3
