"""Networks that were trained elsewhere."""

import pytest
import torch
from torch import nn

import remix
from remix.data import DataError
from remix.networks import as_backbone, create_backbone, register_backbone
from remix.networks import registry as network_registry
from tests.deploy.small import NAMES, QUICK, digits, learner, weights_of


@pytest.fixture(autouse=True)
def own_names():
    before = dict(network_registry._factories)
    yield
    network_registry._factories.clear()
    network_registry._factories.update(before)


class Theirs(nn.Module):
    """A network as somebody else writes it."""

    def __init__(self):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.high = nn.Sequential(nn.Conv2d(6, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        return self.out(self.high(self.low(x)).mean((2, 3)))


THEIRS = {"classes": NAMES[:3], "blocks": ["low", "high"], "input_shape": (1, 8, 8), **QUICK}


def trained():
    torch.manual_seed(0)
    network = Theirs()
    images, labels = digits([0, 1, 2], each=30)
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(25):
        loss = nn.functional.cross_entropy(network(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


def test_it_says_what_the_network_says_and_leaves_it_alone():
    network = trained()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    adopted = remix.Learner.adopt(network, digits([0, 1, 2]), **THEIRS)
    images, _ = digits([0, 1, 2], each=4)
    expected = network((images * 255).round() / 255).softmax(1)
    found = adopted.predict(images, top=3)
    torch.testing.assert_close(found.probabilities, expected.sort(1, descending=True).values.detach())
    assert adopted.classes == tuple(NAMES[:3])
    assert (adopted.history[0].name, adopted.history[0].method) == ("adopted", "remix")
    adopted.learn(digits([3, 4]), classes=NAMES)
    assert adopted.classes == tuple(NAMES[:5])
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


def test_statistics_hold_covariances_with_data_and_none_without():
    network = trained()
    kinds = {}
    for data in (digits([0, 1, 2]), None):
        adopted = remix.Learner.adopt(network, data, freeze="none", **THEIRS)
        kinds[data is None] = {layer.normal is not None for layer in adopted.model.memory.layers.values()}
        told = [note for note in adopted.notes if "priors are diagonal" in note]
        assert bool(told) == (data is None)
        adopted.learn(digits([3]), classes=NAMES)
        assert len(adopted.classes) == 4
    assert True in kinds[False]
    assert kinds[True] == {False}


def test_it_can_be_saved_when_its_backbone_is_registered(tmp_path):
    adopted = remix.Learner.adopt(trained(), digits([0, 1, 2]), **THEIRS)
    assert "register_backbone" in adopted.notes[0]
    with pytest.raises(ValueError, match="register"):
        adopted.save(tmp_path / "model.remix")
    with pytest.raises(ValueError, match=r"register_backbone\): export to onnx or torch"):
        adopted.export(tmp_path / "model.safetensors")
    assert adopted.export(tmp_path / "model.pt2").files == (tmp_path / "model.pt2",)

    @register_backbone("theirs")
    def theirs():
        return as_backbone(Theirs(), blocks=["low", "high"], input_shape=(1, 8, 8))

    named = remix.Learner.adopt(trained(), digits([0, 1, 2]), backbone="theirs", **THEIRS)
    assert not named.notes
    named.save(tmp_path / "model.remix")
    again = remix.load(tmp_path / "model.remix", **QUICK)
    assert all(torch.equal(a, weights_of(named.model)[key]) for key, a in weights_of(again.model).items())
    again.learn(digits([3]), classes=NAMES)


def test_a_classifier_of_remix_is_adopted_as_it_is():
    first = learner()
    first.learn(digits([0, 1]), classes=NAMES)
    adopted = remix.Learner.adopt(
        first.model.classifier, digits([0, 1]), classes=NAMES[:2], backbone="convnet8", options={"width": 4}, **QUICK
    )
    images, _ = digits([0, 1])
    # probabilities of the first are scaled besides, which only its model knows
    logits = [one.model.classifier(images.float()) for one in (adopted, first)]
    torch.testing.assert_close(*logits)


def normalised_by_groups():
    """A network as somebody else writes it, without BatchNorm."""
    torch.manual_seed(0)
    network = Theirs()
    network.low[1], network.high[1] = nn.GroupNorm(2, 6), nn.GroupNorm(2, 12)
    return network


@pytest.mark.parametrize("method", ["remix", "pmi", "lwf", "finetune", "lda", "ranpac", "auto"])
def test_a_network_without_batchnorm_learns_on_with_any_method(method):
    settings = {key: value for key, value in THEIRS.items() if method != "auto" or key not in QUICK}
    adopted = remix.Learner.adopt(normalised_by_groups(), digits([0, 1, 2]), method=method, **settings)
    assert adopted.method == (method if method != "auto" else adopted.history[0].method)
    adopted.learn(digits([3]), classes=NAMES)
    assert adopted.history[1].method == adopted.method
    assert adopted.classes == tuple(NAMES[:4])


@pytest.mark.parametrize("method", ["lwf", "finetune"])
def test_a_method_that_needs_no_statistics_needs_no_data(method):
    adopted = remix.Learner.adopt(normalised_by_groups(), method=method, **THEIRS)
    assert not adopted.model.memory.layers
    assert adopted.history[0].images == (0, 0, 0)
    adopted.learn(digits([3]), classes=NAMES)
    assert len(adopted.classes) == 4


def test_an_exact_head_stands_in_for_the_networks_own_and_goes_on_from_its_file(tmp_path):
    @register_backbone("theirs")
    def theirs():
        return as_backbone(Theirs(), blocks=["low", "high"], input_shape=(1, 8, 8))

    network = trained()
    adopted = remix.Learner.adopt(network, digits([0, 1, 2], 20), backbone="theirs", method="lda", **THEIRS)
    assert "stands in for the network's own" in adopted.notes[-1]
    assert adopted.history[0].images == (20, 20, 20)  # none is held out: each is tested by a head without it
    assert adopted.history[0].accuracies["images left out in turn"] > 80
    adopted.save(tmp_path / "model.remix")
    again = remix.load(tmp_path / "model.remix")
    again.learn(digits([3, 4], 20), classes=NAMES)
    assert again.history[1].method == "lda"
    kept = again.model.classifier.backbone.network.state_dict()
    assert all(torch.equal(value, kept[key]) for key, value in network.state_dict().items())


class TwoLayers(Theirs):
    """Something between pooling and head that is in no block."""

    def forward(self, x):
        return self.out(torch.tanh(self.high(self.low(x)).mean((2, 3))))


@pytest.mark.parametrize(
    ("network", "changes", "kind", "sentence"),
    [
        (Theirs, {"classes": NAMES[:2]}, ValueError, "head has 3 outputs, but classes has 2"),
        (Theirs, {"blocks": ["low", "hihg"]}, ValueError, "did you mean 'high'"),
        (Theirs, {"blocks": None, "input_shape": None}, TypeError, "name its block modules"),
        (Theirs, {"head": "high"}, ValueError, "is no linear layer; there are: out"),
        (TwoLayers, {}, ValueError, "what lies between must be part of a block"),
        (Theirs, {"backbone": "resnet32"}, ValueError, "builds another network"),
        (Theirs, {"data": digits([0, 1])}, DataError, "no image of digit 2"),
        (Theirs, {"data": digits([0, 1, 2, 3])}, DataError, "label 3"),
        (Theirs, {"data": None, "method": "lda"}, ValueError, "solves its head from images: give some"),
        (Theirs, {"method": "joint"}, ValueError, "learn all classes in one step for that"),
        (normalised_by_groups, {"data": None}, ValueError, "no BatchNorm layers.*such as lwf"),
    ],
)
def test_what_cannot_be_adopted_is_explained(network, changes, kind, sentence):
    arguments = {"data": digits([0, 1, 2]), **THEIRS, **changes}
    with pytest.raises(kind, match=sentence):
        remix.Learner.adopt(network(), **arguments)


def test_a_backbone_without_its_head_is_not_enough():
    with pytest.raises(ValueError, match="no linear layer"):
        remix.Learner.adopt(create_backbone("convnet8", width=4), digits([0, 1]), classes=NAMES[:2])
