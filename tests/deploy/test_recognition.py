"""Images of no known class: which models can tell them, what is kept for it, and that it survives files and steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import remix
from remix.deploy.export import PlainNetwork, export, probe
from remix.deploy.prediction import predict, probabilities
from remix.deploy.recognition import UNKNOWN
from remix.learning import load_model, save_model
from remix.statistics import Calibration, Memory
from tests.deploy.small import NAMES, NETWORK, digits, learner

FILES = Path(__file__).parent.parent / "learning" / "files"


@pytest.fixture(scope="module", params=("ncm", "lda", "fecam", "ranpac"))
def exact(request, trained):
    """After two steps."""
    found = remix.Learner(**NETWORK, method=request.param, weights=trained)
    found.learn(digits([0, 1, 2, 3], 30), classes=NAMES)
    found.learn(digits([4, 5], 30), classes=NAMES)
    return found


@pytest.fixture(scope="module")
def dreamed():
    """A network that was trained, in one step."""
    found = learner(method="remix", epochs=12)
    found.learn(digits([0, 1, 2, 3], 40), classes=NAMES)
    return found


def unseen(classes):
    """Images of digits that no step has seen."""
    images, labels = digits(classes, 90)
    return images[torch.cat([(labels == label).nonzero()[45:, 0] for label in classes])]


def test_known_images_are_kept_and_others_called_unknown(exact):
    known, others = unseen([0, 1, 2, 3, 4, 5]), unseen([6, 7, 8, 9])
    kept, found = exact.predict(known, unknown=0.9), exact.predict(others, unknown=0.9)
    assert 0.75 < float(kept.known.double().mean()) <= 1
    assert float(found.known.double().mean()) < float(kept.known.double().mean())
    assert set(found.answers) > {UNKNOWN}
    assert [name == UNKNOWN for name in found.answers] == (~found.known).tolist()
    assert torch.equal(found.known, found.familiar >= 0.1)
    lines = repr(found).splitlines()[1:11]
    assert [f": {UNKNOWN} (digit" in line for line in lines] == (~found.known[:10]).tolist()
    assert exact.model.memory.get(Calibration.name).images == 180
    fewer = exact.predict(known, unknown=0.5)
    assert float(fewer.known.double().mean()) < float(kept.known.double().mean())
    assert torch.equal(fewer.probabilities, exact.predict(known).probabilities)


def test_without_being_asked_nothing_is_unknown(exact):
    found = exact.predict(unseen([9]), top=2)
    assert found.familiar is None
    assert UNKNOWN not in found.answers
    assert found.answers == tuple(names[0] for names in found.names)
    assert len(exact.predict([], unknown=0.9)) == 0


def test_a_file_tells_the_same(exact, tmp_path):
    exact.save(tmp_path / "m.remix")
    images = unseen([0, 9])
    again = remix.load(tmp_path / "m.remix").predict(images, unknown=0.95)
    assert torch.allclose(again.familiar, exact.predict(images, unknown=0.95).familiar, atol=1e-4)


def test_a_trained_network_tells_by_its_gaussians(dreamed):
    found = dreamed.model.memory.get(Calibration.name)
    assert found.images == 32  # held out
    assert found.scale != 1
    known, others = (dreamed.predict(unseen(classes), unknown=0.9).known for classes in ([0, 1, 2, 3], [7, 8, 9]))
    assert float(others.double().mean()) < float(known.double().mean())


@pytest.mark.parametrize("format", ["torch", "safetensors"])
def test_probabilities_and_exports_are_scaled(dreamed, format, tmp_path):
    model = dreamed.model
    images = (255 * unseen([0, 1])).byte()
    x = model.preprocessing.normalisation.normalise(images)
    with torch.no_grad():
        plain = model.classifier(x)
    assert torch.allclose(probabilities(model, images), (model.scale * plain).softmax(1), atol=1e-6)
    assert torch.allclose(PlainNetwork(model)(x), model.scale * plain, atol=1e-4)
    assert export(model, format, tmp_path / "m").difference < 1e-3
    cosine = replace(model, classifier=_cosine(model))
    x = probe(model, 3)
    assert torch.allclose(PlainNetwork(cosine)(x), model.scale * cosine.classifier(x), atol=1e-4)


def _cosine(model):
    from remix.networks import Classifier, CosineHead

    head = CosineHead(model.classifier.head.feature_dim, [4], generator=torch.Generator().manual_seed(0))
    return Classifier(model.classifier.backbone, head).eval().requires_grad_(False)


def test_a_step_without_held_out_images_forgets_how_sure_the_model_was(dreamed):
    again = remix.Learner.of(dreamed.model)
    again.learn(digits([4], 10), classes=NAMES, holdout=0.0, epochs=1, samples=2)
    assert again.model.memory.get(Calibration.name) is None
    assert again.model.scale == 1


def test_methods_that_keep_no_statistics_have_a_scale_alone(tmp_path):
    found = learner(method="finetune")
    found.learn(digits([0, 1], 20), classes=NAMES)
    known = found.model.memory.get(Calibration.name)
    assert known.quantiles is None
    with pytest.raises(ValueError, match="keeps no statistics of classes; leave unknown"):
        found.predict(unseen([0]), unknown=0.9)
    found.save(tmp_path / "m.remix")
    assert load_model(tmp_path / "m.remix").scale == known.scale


@pytest.mark.parametrize("version", [1, 2])
def test_models_of_earlier_versions_open_and_say_that_they_cannot_tell(version):
    model = load_model(FILES / f"model-v{version}.remix")
    assert model.scale == 1
    assert len(predict(model, torch.zeros(2, 1, 8, 8))) == 2
    with pytest.raises(ValueError, match=r"^the model cannot tell images of no known class: an earlier"):
        predict(model, torch.zeros(2, 1, 8, 8), unknown=0.95)


@pytest.mark.parametrize("share", [0, 1, 95, -0.5, float("nan")])
def test_what_is_no_share_is_refused_before_an_image_is_read(exact, share):
    with pytest.raises(ValueError, match=r"above 0 and below 1 such as 0\.95, got"):
        exact.predict("no such file.png", unknown=share)


def test_a_model_whose_statistics_were_removed_cannot_tell(exact, tmp_path):
    bare = replace(exact.model, memory=Memory())
    save_model(tmp_path / "m.remix", bare)
    with pytest.raises(ValueError, match="cannot tell images of no known class"):
        predict(load_model(tmp_path / "m.remix"), unseen([0]), unknown=0.9)


def test_classes_of_one_image_each_leave_nothing_to_measure(trained):
    found = remix.Learner(**NETWORK, method="lda", weights=trained)
    found.learn(digits([0, 1, 2], 1), classes=NAMES)
    with pytest.raises(ValueError, match="cannot tell"):
        found.predict(unseen([0]), unknown=0.9)
    found.learn(digits([3, 4], 10), classes=NAMES)
    assert found.predict(unseen([3, 9]), unknown=0.9).familiar is not None
