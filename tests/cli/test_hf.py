"""A folder of the `transformers` library as the network of `run`, `learn`, `measure`, `dream` and `predict`."""

import shutil
import sys

import pytest
import torch
from PIL import Image
from tiny_hf import make, save

from remix.cli import main
from remix.learning import load_model

QUICK = ["--epochs", "1", "--samples", "4", "--batch", "8"]


def remix(*words):
    main([*map(str, words)])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders of colours as classes, and a ViT of random weights."""
    root = tmp_path_factory.mktemp("hf")
    model = make("vit")
    model.config.id2label = dict(enumerate(["red", "green", "blue", "grey"]))
    save(model, root / "vit", image_mean=[0.4] * 3, image_std=[0.2] * 3, resample=2, size={"height": 32, "width": 32})
    generator = torch.Generator().manual_seed(0)
    colours = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "grey": (120, 120, 120)}
    for name, colour in colours.items():
        for part in ("all", "first" if name in ("red", "green") else "more"):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(8):
                noise = torch.randint(-20, 20, (3,), generator=generator).tolist()
                shade = tuple(one + more for one, more in zip(colour, noise, strict=True))
                Image.new("RGB", (40, 36), shade).save(folder / f"{number}.png")
    return root


def test_a_learned_model_predicts_without_the_folder(place, tmp_path, capsys):
    vit = shutil.copytree(place / "vit", tmp_path / "vit")
    remix("learn", place / "first", "--backbone", f"hf:{vit}", "--out", tmp_path / "one.remix", *QUICK)
    shutil.rmtree(vit)
    remix("learn", tmp_path / "one.remix", place / "more", "--out", tmp_path / "two.remix", *QUICK)
    capsys.readouterr()
    remix("predict", tmp_path / "two.remix", place / "all" / "red" / "0.png")
    assert "red" in capsys.readouterr().out
    model = load_model(tmp_path / "two.remix")
    assert model.classes == ("green", "red", "blue", "grey")
    assert (model.preprocessing.mean, model.preprocessing.resample) == ((0.4,) * 3, "bilinear")
    assert model.provenance["weights"] == "hf:vit"
    assert model.frozen == len(model.classifier.backbone.blocks()) - 1


def test_a_model_file_needs_no_library(place, tmp_path, capsys, monkeypatch):
    out = tmp_path / "one.remix"
    remix("learn", place / "first", "--backbone", f"hf:{place / 'vit'}", "--out", out, *QUICK)
    remix("predict", out, place / "all" / "red" / "0.png")
    said = capsys.readouterr().out.splitlines()[-2:]
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    remix("predict", out, place / "all" / "red" / "0.png")
    assert capsys.readouterr().out.splitlines()[-2:] == said


def test_a_measured_folder_dreams(place, tmp_path, capsys):
    network = ["--backbone", f"hf:{place / 'vit'}"]
    remix("measure", place / "all", *network, "--out", tmp_path / "m.remix")
    model = load_model(tmp_path / "m.remix")
    assert sorted(model.classes) == ["blue", "green", "grey", "red"]
    assert model.memory.layers["layers.1.mlp:input:token-positions"].dim == 17
    remix("dream", tmp_path / "m.remix", "--steps", "2", "--count", "1", "--out", tmp_path / "grid.png")
    model.memory.save(tmp_path / "memory.safetensors")
    more = ["--statistics", tmp_path / "memory.safetensors", "--strategy", "pixels", "--steps", "2", "--count", "1"]
    remix("dream", *network, *more, "--out", tmp_path / "bare.png")
    assert (tmp_path / "grid.png").is_file()
    assert (tmp_path / "bare.png").is_file()
    with pytest.raises(SystemExit):
        remix("dream", *network, "--out", tmp_path / "none.png")
    assert "measure it first (remix measure IMAGES --backbone hf:" in " ".join(capsys.readouterr().err.split())


def test_a_run_normalises_as_the_folder_and_leaves_a_model_of_its_own(place, tmp_path):
    vit = shutil.copytree(place / "vit", tmp_path / "vit")
    words = [
        "data.name=" + str(place / "all"), "data.tasks=2", "data.options.size=16", f"network.backbone=hf:{vit}",
        "network.options.input_shape=[3,16,16]", "batch_size=8", "settings.first.epochs=1", "settings.later.epochs=1",
    ]  # fmt: skip
    remix("run", "digits", "--method", "finetune", "--out", tmp_path / "run", "--set", *words)
    shutil.rmtree(vit)
    model = load_model(tmp_path / "run" / "model.remix")
    assert model.preprocessing.mean == (0.4,) * 3
    assert model.backbone == "transformer"
    assert model.classifier.backbone.input_shape == (3, 16, 16)


def test_weights_are_asked_for_where_a_network_has_none(place, tmp_path, capsys):
    with pytest.raises(SystemExit):
        remix("measure", place / "all", "--backbone", "resnet18", "--out", tmp_path / "m.remix")
    assert "give the weights of resnet18 with --weights" in " ".join(capsys.readouterr().err.split())
