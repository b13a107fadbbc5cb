"""Networks without BatchNorm, one of them a transformer: dreamed, measured, merged and learned like any other."""

import pytest
import torch
from tiny import tiny_method, tiny_stream
from tiny_transformer import PlainConvolutions, TinyTransformer

import remix
from remix.data import ImageDataset
from remix.deploy.measuring import measure_model
from remix.learning import Engine, load_model, save_model
from remix.networks import Backbone, Classifier, LinearHead, register_backbone, registry
from remix.networks.views import TOKEN_CHANNELS, TOKEN_POSITIONS
from tests.deploy.small import NAMES, QUICK, digits

STREAM = tiny_stream()
WATCHED = {f"layers.{i}{part}:input" for i in range(3) for part in ("", ".attention", ".mlp")}


def engine_of(backbone: Backbone, name: str, start: int = 0) -> Engine:
    student = Classifier(backbone.float(), LinearHead(backbone.feature_dim))
    return Engine(student, tiny_method(name), STREAM.normalisation, batch_size=32, start=start)


@pytest.mark.parametrize("view", [TOKEN_CHANNELS, TOKEN_POSITIONS])
@pytest.mark.parametrize("name", ["pmi", "remix"])
def test_a_transformer_learns_two_tasks_and_its_statistics_are_merged(name, view):
    engine = engine_of(TinyTransformer(view), name)
    before = {key: tensor.clone() for key, tensor in engine.student.state_dict().items()}
    engine.learn(STREAM[0])
    assert {str(layer.point) for layer in engine.memory.layers.values()} == WATCHED
    assert all(layer.view == view for layer in engine.memory.layers.values())
    first = engine.memory.layers
    engine.learn(STREAM[1])
    after = engine.student.state_dict()
    assert all(not torch.equal(after[key], tensor) for key, tensor in before.items())
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    assert [record.name for record in engine.memory.classes] == list(STREAM.classes)
    for key, layer in engine.memory.layers.items():
        assert layer.images == 2 * first[key].images
        assert (layer.normal is not None) == (name == "remix")


@pytest.mark.parametrize("network", [TinyTransformer, PlainConvolutions])
def test_replay_enters_above_frozen_blocks_which_stay_as_they_are(network):
    engine = engine_of(network(), "remix", start=2)
    engine.learn(STREAM[0])
    below = [tensor for block in engine.backbone.blocks()[:2] for tensor in block.module.state_dict().values()]
    before = [tensor.clone() for tensor in below]
    shapes = []

    def look() -> None:
        if engine.replay is not None:
            shapes.append((engine.replay.start, tuple(engine.replay.images.shape[1:])))

    engine.learn(STREAM[1], look)
    expected = tuple(engine.backbone.features(torch.zeros(1, 1, 8, 8), stop=2).shape[1:])
    assert set(shapes) == {(2, expected)}
    assert all(torch.equal(now, then) for now, then in zip(below, before, strict=True))


def test_a_transformer_is_a_network_for_steps_and_model_files(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_backbone("tiny-transformer")(lambda: TinyTransformer().float())
    learner = remix.Learner("tiny-transformer", **QUICK)
    learner.learn(digits([0, 1]), classes=NAMES)
    learner.learn(digits([2]), classes=NAMES)
    learner.learn(digits([1, 3]), classes=NAMES, extend=True)
    save_model(tmp_path / "model.remix", learner.model)
    again = load_model(tmp_path / "model.remix")
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(again.classifier(images), learner.model.classifier(images))
    assert sorted(again.memory.describe()) == sorted(learner.model.memory.describe())
    assert len(remix.Learner.of(again, **QUICK).dream(NAMES[2], 2, steps=2)) == 2


def test_a_transformer_is_measured_where_it_says_and_as_its_blocks_are_read():
    learner = remix.Learner(TinyTransformer().float(), **QUICK)
    learner.learn(digits([0, 1]), classes=NAMES)
    images, labels = digits([0, 1])
    data = ImageDataset((255 * images).byte(), labels, learner.classes)
    found = measure_model(learner.model, data, learner.classes).model.memory
    assert {str(layer.point) for layer in found.layers.values()} == WATCHED
    assert all(layer.view == TOKEN_CHANNELS and layer.normal is not None for layer in found.layers.values())
