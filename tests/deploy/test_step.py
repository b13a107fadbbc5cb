"""Going on with models of every origin: other methods, runs, weights from elsewhere, statistics that were removed."""

from dataclasses import replace

import pytest
import torch
from tiny_runs import remix_run, tiny
from torch import nn

import remix
from remix.deploy.step import _Watch, opened
from remix.learning import Engine, TensorReplay
from remix.methods import pmi
from remix.statistics import ClassMeter, LayerMeter, feature_point, measure_layers, run_meters
from tests.deploy.small import NAMES, QUICK, digits, learner, weights_of


@pytest.fixture
def first():
    found = learner()
    found.learn(digits([0, 1, 2]), classes=NAMES)
    return found


def test_another_method_goes_on_with_a_model_of_remix_and_back(first):
    for method, digit in (("pmi", 3), ("remix", 4), ("lwf", 5)):
        first.use_method(method)
        first.learn(digits([digit]), classes=NAMES)
    assert first.classes == tuple(NAMES[:6])


def test_statistics_of_other_kinds_are_reduced_to_those_that_are_measured():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    images = [torch.randn(20, 1, 8, 8)]
    (layer,) = measure_layers(network, images, ["1:input"], kinds=("laplace", "dense")).values()
    assert LayerMeter(["1:input"], kinds=()).as_measured(layer).kinds == ("diagonal",)
    assert LayerMeter(["1:input"]).as_measured(layer).kinds == ("diagonal", "laplace")
    (dense,) = measure_layers(network, images, ["1:input"], kinds=("dense",)).values()
    assert LayerMeter(["1:input"]).as_measured(dense) is None
    assert LayerMeter(["0:input"]).as_measured(layer) is None
    assert LayerMeter(["1:input"], "map").as_measured(layer) is None


def test_a_model_of_a_run_learns_more_and_dreams_what_it_learned(tmp_path):
    assert remix_run(tiny("remix", tmp_path / "run")) == 0
    found = remix.load(tmp_path / "run" / "model.remix", **QUICK)
    assert found.model.memory.selectors is not None
    found.learn(digits([7]), classes=NAMES)
    assert len(found.dream("digit 7", 2, steps=1)) == 2


def test_weights_from_elsewhere_are_remembered(first):
    assert not opened(first.model).trained
    assert opened(replace(first.model, provenance={"weights": "resnet34.safetensors"})).trained
    assert opened(replace(first.model, provenance={"adopted": "MyNet"})).trained


def test_held_out_images_count_also_where_all_classes_are_known(monkeypatch):
    watch = _Watch.__new__(_Watch)
    watch.dreams = TensorReplay(torch.zeros(3, 1, 8, 8), torch.arange(3), torch.zeros(3, 3))
    images, labels = digits([0, 1], each=3)
    watch.held = remix.data.ImageDataset((images * 255).byte(), labels, tuple(NAMES[:3]))
    watch.engine = type("Images", (), {"images": staticmethod(lambda data: "images")})
    monkeypatch.setattr(watch, "_mean_loss", lambda batches: 1.0 if batches == "images" else 0.0, raising=False)
    assert watch.judge() == pytest.approx(2 / 5)


def test_a_class_does_not_shrink_to_its_dreams(first, monkeypatch):
    """What a class is taken for changes as its dreams move, and not at all if they do not."""
    found = []

    def shifted(engine, dreamed):
        backbone = engine.teacher.backbone
        meter = ClassMeter(feature_point(backbone), backbone.pool)
        run_meters(backbone, engine.replay.batches(500), [meter])
        still, moved = (original(engine, gaussians) for gaussians in (meter.gaussians(), dreamed))
        found.append((engine.memory.gaussians, still, moved))
        return moved

    original = pmi.shifted_gaussians
    monkeypatch.setattr(pmi, "shifted_gaussians", shifted)
    first.learn(digits([3, 4]), classes=NAMES)
    ((before, still, moved),) = found
    torch.testing.assert_close(still.mean, before.mean)
    torch.testing.assert_close(still.std, before.std)
    assert not torch.equal(moved.mean, before.mean)
    assert moved.counts == before.counts
    kept = first.model.memory.gaussians
    torch.testing.assert_close(kept.std[:3], moved.std)
    torch.testing.assert_close(kept.mean[:3], moved.mean)


# --- what is refused, and when ---


def test_a_model_without_records_is_refused_before_it_is_trained(first):
    stripped = remix.Learner.of(replace(first.model, memory=None), **QUICK)
    for method in ("finetune", "lwf", "remix"):
        stripped.use_method(method)
        with pytest.raises(ValueError, match="no record of all its classes"):
            stripped.learn(digits([3]), classes=NAMES)


def test_lwf_cannot_extend(first):
    first.use_method("lwf")
    with pytest.raises(ValueError, match="lwf has no place for images of known classes"):
        first.learn(digits([2, 3]), classes=NAMES, extend=True)


@pytest.mark.parametrize("method", ["remix", "pmi"])
def test_a_network_without_batchnorm_learns_step_by_step(method):
    blocks = [nn.Sequential(nn.Conv2d(a, b, 3), nn.ReLU()) for a, b in ((1, 4), (4, 8), (8, 8))]
    network = nn.Sequential(*blocks)
    found = remix.Learner(network, method, blocks=["0", "1", "2"], input_shape=(1, 8, 8), **QUICK)
    found.learn(digits([0, 1]), classes=NAMES)
    found.learn(digits([2]), classes=NAMES)
    found.learn(digits([1, 3]), classes=NAMES, extend=True)
    assert found.classes == tuple(NAMES[:4])
    assert set(found.model.memory.layers) == {"network.1:input:channels", "network.2:input:channels"}
    fitted = [layer.normal is not None for layer in found.model.memory.layers.values()]
    assert fitted == [method == "remix"] * 2


def test_a_size_that_would_be_ignored_is_refused(first):
    with pytest.raises(ValueError, match=r"remix\.Learner\(\.\.\., size=\.\.\.\)"):
        learner().learn(digits([0, 1]), classes=NAMES, size=16)
    with pytest.raises(ValueError, match="size go with a backbone's name"):
        remix.Learner(first.model.classifier.backbone, size=16)


def test_a_name_that_cannot_be_saved_is_refused_before_training(first, monkeypatch):
    monkeypatch.setattr(Engine, "learn", lambda *args: pytest.fail("was trained"))
    with pytest.raises(ValueError, match="name"):
        first.learn(digits([3]), "x" * 300, classes=NAMES)


def test_drift_goes_on_from_its_file_and_not_from_that_of_another_method(tmp_path):
    found = learner(method="drift")
    found.learn(digits([0, 1, 2]), classes=NAMES)
    found.save(tmp_path / "m.remix")
    again = remix.load(tmp_path / "m.remix", **QUICK)
    for one in (found, again):
        one.learn(digits([3]), classes=NAMES)
    assert again.method == again.history[1].method == "drift"
    assert all(torch.equal(tensor, weights_of(found.model)[key]) for key, tensor in weights_of(again.model).items())
    assert again.model.memory.gaussians.labels == (0, 1, 2, 3)
    assert not any("nothing is held out" in note for note in again.notes)
    assert set(again.history[1].accuracies) == {"new classes, held-out images"}
    again.use_method("remix")
    with pytest.raises(
        ValueError, match="the model has an exact head, which the method remix cannot train: go on with"
    ):
        again.learn(digits([4]), classes=NAMES)
    other = learner(method="remix")
    other.learn(digits([0, 1]), classes=NAMES)
    other.use_method("drift")
    with pytest.raises(ValueError, match="keeps no covariances of its classes, so the method drift cannot go on"):
        other.learn(digits([2]), classes=NAMES)
