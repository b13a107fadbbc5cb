"""Exported networks: other programs give the model's answers, and nothing is written unless they do."""

from __future__ import annotations

import copy
import json
import os
import zipfile
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from remix.data import Preprocessing
from remix.deploy import export as exporting
from remix.deploy.export import SUFFIXES, Plain, PlainNetwork, card, export, probe
from remix.learning import Model, load_model, save_model
from remix.networks import Classifier, LinearHead, create_backbone, load_classifier

FORMATS = list(SUFFIXES)


def test_the_plain_network_gives_the_models_logits(model):
    network, images = PlainNetwork(model), probe(model, 7)
    assert torch.allclose(network(images), model.classifier(images), atol=1e-5)
    assert network.fc.weight.shape == (4, 16)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert all(parameter.requires_grad for parameter in model.classifier.parameters())


def test_onnx_has_a_free_batch_and_tells_its_classes(model, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export(model, "onnx", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for count in (1, 2, 9):
        images = probe(model, count)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        assert torch.allclose(torch.from_numpy(logits), model.classifier(images), atol=1e-4)
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == list(model.classes)
    assert json.loads(told["preprocessing"])["size"] == 8


def test_the_reference_serves_where_the_runtime_is_absent(model, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    there = exporting.find_spec
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnxruntime" else there(name))
    assert export(model, "onnx", tmp_path / "m.onnx").program == "onnx.reference"


def test_the_program_of_torch_holds_no_pickle(model, tmp_path):
    export(model, "torch", tmp_path / "m.pt2")
    with zipfile.ZipFile(tmp_path / "m.pt2") as archive:
        for entry in archive.infolist():
            assert entry.file_size == 0 or not entry.filename.endswith((".pt", ".pkl")), entry.filename
    told = {"remix.json": ""}
    network = torch.export.load(tmp_path / "m.pt2", extra_files=told).module()
    images = probe(model, 9)
    assert torch.allclose(network(images), model.classifier(images), atol=1e-5)
    assert json.loads(told["remix.json"]) == json.loads(json.dumps(card(model)))


def test_safetensors_are_read_back_as_weights(model, tmp_path):
    export(model, "safetensors", tmp_path / "m.safetensors")
    again = load_classifier("convnet8", tmp_path / "m.safetensors", width=4).eval()
    images = probe(model, 3)
    assert torch.allclose(again(images), model.classifier(images), atol=1e-5)
    told = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    assert told["classes"] == ["zero", "one", "two", "drei ³"]
    assert told["preprocessing"] == model.preprocessing.to_dict() | model.preprocessing.recipe()
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert json.loads(file.metadata()["remix"]) == told


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("resnet20", {"width": 4}, "stage_1.0.conv1.weight"),
        ("resnet20", {"width": 4, "final_relu": True, "padding": "symmetric"}, "layer3.2.conv1.weight"),
        ("resnet18", {"input_shape": (3, 32, 32)}, "layer4.1.bn2.weight"),
    ],
)
def test_the_key_names_are_the_usual_ones(name, options, key, tmp_path):
    backbone = create_backbone(name, **options)
    head = LinearHead(backbone.feature_dim, [2, 1], bias=True)
    made = Model(
        Classifier(backbone, head).eval(), name, options, ("a", "b", "c"), Preprocessing(32, 3, (0.5,) * 3, (1,) * 3)
    )
    assert export(made, "safetensors", tmp_path / "m.safetensors").difference < 1e-5
    weights = load_file(tmp_path / "m.safetensors")
    assert key in weights
    assert weights["fc.weight"].shape == (3, backbone.feature_dim)
    assert weights["fc.bias"].shape == (3,)


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_that_gives_nan_is_not_exported(model, format, tmp_path):
    broken = replace(model, classifier=copy.deepcopy(model.classifier))
    with torch.no_grad():
        next(broken.classifier.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match=r"NaN or infinite"):
        export(broken, format, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_other_answers_are_not_written(model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        exporting, "_FORMATS", {"torch": lambda model: Plain(b"", lambda x: model.classifier(x) + 1, "a test")}
    )
    with pytest.raises(ValueError, match="a logit differs by 1"):
        export(model, "torch", tmp_path / "m.pt2")
    monkeypatch.setattr(exporting, "_FORMATS", {"torch": lambda _: Plain(b"", lambda x: x, "a test")})
    with pytest.raises(ValueError, match="does not give the model's answers"):
        export(model, "torch", tmp_path / "m.pt2")
    assert os.listdir(tmp_path) == []


def test_the_device_and_precision_of_the_model_do_not_matter(model, tmp_path):
    save_model(tmp_path / "m.remix", model)
    double = replace(load_model(tmp_path / "m.remix"), memory=None)
    double.classifier.double()
    assert export(double, "safetensors", tmp_path / "m.safetensors").difference < 1e-4
    assert next(double.classifier.parameters()).dtype == torch.float64
