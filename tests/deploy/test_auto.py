"""The method auto: which one it comes to, that it stays with it, and that hard data do not break it."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from safetensors.torch import save_file

import remix
from remix.methods.step_features import StepFeatures, stage_ends
from remix.networks import create_backbone
from tests.deploy.small import NAMES, NETWORK, QUICK, digits, weights_of


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Of a network, random ones."""
    path = tmp_path_factory.mktemp("weights") / "convnet8.safetensors"
    network = create_backbone("convnet8", width=4, generator=torch.Generator().manual_seed(0))
    save_file(network.state_dict(), path)
    return path


def taught(weights, *steps, method="auto"):
    found = remix.Learner(**NETWORK, method=method, weights=weights)
    for step in steps:
        found.learn(digits(step), classes=NAMES)
    return found


def test_with_weights_it_is_an_exact_head_and_says_which_and_why(weights):
    found = taught(weights, [0, 1, 2])
    assert found.method in ("lda", "ranpac")
    assert found.history[0].method == found.method
    assert found.notes[0].startswith(
        f"auto chose {found.method}, by the cross-entropy of images left out in turn: lda "
    )


def test_it_is_the_method_that_it_chose_and_stays_with_it_over_files(weights, tmp_path):
    found = taught(weights, [0, 1, 2], [3])
    found.save(tmp_path / "model.remix")
    again = remix.load(tmp_path / "model.remix")
    again.use_method("auto")
    again.learn(digits([4]), classes=NAMES)
    twin = taught(weights, [0, 1, 2], [3], [4], method=found.method)
    assert again.method == twin.method == found.method
    assert all(torch.equal(tensor, weights_of(twin.model)[key]) for key, tensor in weights_of(again.model).items())


@pytest.mark.parametrize(("round", "chosen"), [(False, "lda"), (True, "ranpac")])
def test_a_class_around_another_needs_random_features_and_one_beside_another_does_not(weights, round, chosen):
    def features(engine, data, at, sizes):
        generator, labels = torch.Generator().manual_seed(0), torch.arange(400) % 2
        rows = torch.randn(400, sum(sizes), generator=generator)
        rows = rows * (1 + 3 * labels[:, None]) if round else rows + 0.5 * labels[:, None]
        return StepFeatures(rows, labels, at.blocks, tuple(sizes))

    with mock.patch("remix.methods.exact.step_features", features):
        assert taught(weights, [0, 1]).method == chosen


def test_without_weights_it_goes_on_training_where_there_are_as_many_images_as_features():
    features = stage_ends(create_backbone("convnet8", width=4)).dim
    few, enough = (remix.Learner("convnet8", options={"width": 4}, holdout=0.0) for _ in range(2))
    each = -(-features // 2)
    enough.learn(digits([0, 1], each=each), classes=NAMES)
    assert enough.method == "drift"
    assert any(f"{2 * each} images are enough to tell how its {features} features" in note for note in enough.notes)
    enough.learn(digits([2], each=each), classes=NAMES)
    assert enough.history[1].method == "drift"
    few.learn(digits([0, 1], each=each - 1), classes=NAMES)
    assert few.method in ("lda", "ranpac")


@pytest.mark.parametrize("setting", [{"covariance": "dense"}, {"minimum": 2}, {"removable": True}])
def test_settings_of_sums_keep_it_an_exact_head(setting):
    found = remix.Learner("convnet8", options={"width": 2}, **setting)
    found.learn(digits([0, 1], each=100), classes=NAMES)
    assert found.method in ("lda", "ranpac")


def test_without_weights_the_network_learns_from_the_first_classes_and_rests_then():
    found = remix.Learner("convnet8")
    found.learn(digits([0, 1]), classes=NAMES)
    assert found.method in ("lda", "ranpac")
    trained = {name: tensor.clone() for name, tensor in found.model.classifier.backbone.state_dict().items()}
    assert float(trained["convolutions.0.bn.num_batches_tracked"]) > 0
    found.learn(digits([2]), classes=NAMES)
    after = found.model.classifier.backbone.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in trained.items())


def test_a_setting_of_training_asks_for_training(weights):
    found = remix.Learner(**NETWORK, weights=weights, **QUICK)
    found.learn(digits([0, 1]), classes=NAMES)
    assert found.method == "remix"
    assert "auto chose remix, which trains: epochs (--epochs) is a setting of training" in found.notes


def test_copies_of_images_are_told_and_only_those(weights):
    images, labels = digits([0, 1], 6)
    told = "images are to the network what another one is"
    assert not any(told in note for note in taught(weights, [0, 1]).notes)
    found = remix.Learner(**NETWORK, weights=weights, batch=5)
    found.learn((torch.cat([images, images[:2]]), torch.cat([labels, labels[:2]])), classes=NAMES)
    assert any(note.startswith(f"2 of 14 {told}") for note in found.notes)


def test_a_setting_of_lda_asks_for_lda(weights):
    found = remix.Learner(**NETWORK, weights=weights, covariance="diagonal")
    found.learn(digits([0, 1]), classes=NAMES)
    assert found.method == "lda"


@pytest.mark.parametrize("what", ["one image of a class", "one image of each", "identical images", "constant features"])
def test_images_that_tell_little_give_a_model_with_finite_answers(weights, what, tmp_path):
    images, labels = digits([0, 1, 2], 1 if what == "one image of each" else 6)
    if what == "one image of a class":
        images, labels = images[5:], labels[5:]
    if what == "identical images":
        images = images[:1].expand(len(images), -1, -1, -1)
    if what == "constant features":
        network = create_backbone("convnet8", width=4)
        save_file(
            {name: torch.zeros_like(one) for name, one in network.state_dict().items()}, tmp_path / "w.safetensors"
        )
        weights = tmp_path / "w.safetensors"
    found = remix.Learner(**NETWORK, weights=weights)
    found.learn((images, labels), classes=NAMES)
    told = {
        "one image of a class": ", by the cross-entropy of images left out in turn: lda ",
        "one image of each": "auto chose lda, unseen: to compare heads takes two classes, and two images of one",
        "identical images": "17 of 18 images are to the network what another one is",
        "constant features": "17 of 18 images are to the network what another one is",
    }[what]
    assert any(told in note for note in found.notes)
    assert bool(found.history[0].accuracies) == (what != "one image of each")
    found.learn(digits([3], 1), classes=NAMES)
    probabilities = found.predict(digits([0, 1, 2, 3], 3)[0], top=4).probabilities
    assert torch.isfinite(torch.as_tensor(probabilities)).all()


def test_five_hundred_classes_of_three_images(weights):
    centres = torch.rand(500, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images = torch.cat([centres, centres * 0.99, centres * 0.98])
    found = remix.Learner(**NETWORK, weights=weights)
    found.learn((images, torch.arange(500).repeat(3)), classes=[f"class {number}" for number in range(500)])
    assert len(found.classes) == 500
    assert torch.isfinite(torch.as_tensor(found.predict(images[:5], top=2).probabilities)).all()
