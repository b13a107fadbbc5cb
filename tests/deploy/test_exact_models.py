"""Models with exact heads: taught from their file alone, used, inspected and exported like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import remix
from remix.deploy.export import SUFFIXES, export
from remix.deploy.inspection import KINDS, inspect_file, single_images
from remix.learning.model_file import KIND, VERSION
from remix.networks import create_backbone, load_classifier
from remix.statistics import ClassSums, DamagedFileError, read_file, write_file
from tests.deploy.small import NAMES, NETWORK, QUICK, digits, learner, weights_of

HEADS = ("ncm", "lda", "fecam", "ranpac")
STORED = Path(__file__).parent.parent / "learning" / "files" / "model-v2.remix"


def exact(trained, name, **changes):
    return remix.Learner(**NETWORK, method=name, weights=trained, **changes)


@pytest.fixture(scope="module", params=HEADS)
def taught(request, trained):
    """A learner of each kind, after three steps: two digits, one, and further images of one with another."""
    found = exact(trained, request.param)
    found.learn(digits([0, 1]), classes=NAMES)
    found.learn(digits([2]), classes=NAMES)
    found.learn(digits([1, 3], 15), classes=NAMES, extend=True)
    return found


def test_going_on_from_the_file_is_going_on(taught, tmp_path):
    taught.save(tmp_path / "m.remix")
    again = remix.load(tmp_path / "m.remix")
    assert again.method == taught.method
    sums, kept = (one.model.memory.get(ClassSums.name) for one in (again, taught))
    assert all(torch.equal(tensor, kept.tensors()[name]) for name, tensor in sums.tensors().items())
    assert sums.mean.dtype == torch.float64
    again.learn(digits([4]), classes=NAMES)
    other = remix.Learner.of(taught.model)
    other.learn(digits([4]), classes=NAMES)
    assert all(torch.equal(tensor, weights_of(other.model)[key]) for key, tensor in weights_of(again.model).items())


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": [9]}, {"sizes": [7]}, {"rooted": "yes"}, {"projection": 3}, {"tasks": [3]}, {"kind": "quadratics"},
        {"blocks": None}, {"sizes": [1 << 30]},
    ],
)  # fmt: skip
def test_a_file_that_describes_another_head_is_refused_in_a_sentence(trained, change, tmp_path):
    found = exact(trained, "ncm")
    found.learn(digits([0, 1]), classes=NAMES)
    found.save(tmp_path / "m.remix")
    tensors, content = read_file(tmp_path / "m.remix", KIND, VERSION)
    write_file(tmp_path / "m.remix", KIND, VERSION, tensors, content | {"head": content["head"] | change})
    with pytest.raises(DamagedFileError, match=r"is not a valid model: [^\n]+$"):
        remix.load(tmp_path / "m.remix")


def test_all_images_are_learned_from_and_each_is_tested_without_itself(taught, trained):
    assert [step.images for step in taught.history] == [(10, 10), (10,), (15, 15)]
    assert [list(step.accuracies) for step in taught.history] == [
        ["images left out in turn"], *[["new classes, images left out in turn"]] * 2,
    ]  # fmt: skip
    assert taught.evaluate(digits([0, 1, 2, 3], 60), classes=NAMES).micro > 65
    held = exact(trained, taught.method, holdout=0.2)
    held.learn(digits([0, 1]), classes=NAMES)
    assert set(held.history[0].accuracies) == {"images left out in turn", "held-out images"}


def test_the_network_is_that_of_the_weights_and_all_of_it_is_frozen(taught, trained):
    begun = create_backbone("convnet8", width=4)
    remix.networks.load_weights(begun, trained)
    found = taught.model.classifier.backbone.state_dict()
    assert all(torch.equal(tensor, found[key]) for key, tensor in begun.state_dict().items())
    assert taught.model.frozen == 5


@pytest.mark.parametrize(
    "format", [pytest.param(one, marks=pytest.mark.slow if one == "onnx" else ()) for one in SUFFIXES]
)
def test_every_export_gives_the_answers_of_the_model(taught, format, tmp_path):
    if format == "onnx":
        pytest.importorskip("onnxscript")
    out = tmp_path / f"m{SUFFIXES[format]}"
    assert export(taught.model, format, out).difference < 1e-3
    if format == "safetensors":
        told = json.loads(out.with_suffix(".json").read_text())["head"]
        assert told["described"] == taught.model.classifier.head.describe()
        assert told["formula"][-1].startswith("logits = scale * (")
        with pytest.raises(ValueError, match=r"unexpected: exact_head\."):  # not taken for one linear layer
            load_classifier("convnet8", out, width=4)


def test_every_byte_of_the_file_is_accounted_for(taught, tmp_path):
    taught.save(tmp_path / "m.remix")
    found = inspect_file(tmp_path / "m.remix")
    assert sum(part.bytes for part in found.parts) == found.bytes
    assert {part.kind for part in found.parts} <= set(KINDS)
    told = found.covariances()
    assert list(told) == {"ncm": [], "lda": ["dense", "laplace", "diagonal"]}.get(taught.method, ["dense"])
    kinds = {total.kind: total.bytes for total in found.totals()}
    assert kinds.get("dense covariance", 0) == told.get("dense", 0)
    assert ("random projection" in kinds) == (taught.method == "ranpac")
    assert single_images(found.model) == []


@pytest.mark.parametrize("kind", ["dense", "laplace", "diagonal"])
def test_the_bytes_of_another_covariance_are_what_it_would_take(trained, kind, tmp_path):
    sizes = {}
    for one in ("dense", kind):
        found = exact(trained, "lda", covariance=one)
        found.learn(digits([0, 1]), classes=NAMES)
        found.save(tmp_path / "m.remix")
        sizes[one] = inspect_file(tmp_path / "m.remix").covariances()
        assert next(iter(sizes[one])) == one
    assert sizes[kind][kind] <= sizes["dense"]["dense"]


def test_the_one_image_of_a_class_is_told_to_be_in_its_sums(trained, tmp_path):
    found = exact(trained, "lda")
    images, labels = digits([0, 1])
    found.learn((images[:11], labels[:11]), classes=NAMES)
    (told, few) = _warnings(found, tmp_path)
    assert "the sums of digit 1 are the features of one image each" in told
    assert "fewer than 10 images of digit 1" in few
    sums, map = found.model.memory.get(ClassSums.name), found.model.classifier.head.map
    x = found.preprocessing.normalisation.normalise(found.preprocessing.batch([images[10]]))
    with torch.no_grad():
        assert torch.allclose(sums.mean[1].float(), map(found.model.classifier.pooled(x))[0], atol=1e-5)


def test_one_further_image_of_a_class_is_told_too_since_its_step_is_kept_apart(trained, tmp_path):
    found = exact(trained, "lda")
    found.learn(digits([0, 1], 12), classes=NAMES)
    assert _warnings(found, tmp_path) == []
    with pytest.raises(ValueError, match="digit 1 has 1 image to learn from, and the least is 2"):
        found.learn(digits([1], 1), classes=NAMES, extend=True, minimum=2)
    found.learn(digits([1], 1), classes=NAMES, extend=True)
    (told, few) = _warnings(found, tmp_path)
    assert "the sums of digit 1 are the features of one image each" in told
    assert "fewer than 10 images of digit 1" in few


def _warnings(found, tmp_path):
    found.save(tmp_path / "m.remix")
    return inspect_file(tmp_path / "m.remix").warnings()


def test_classes_below_the_minimum_are_refused_and_nothing_changes(trained):
    found = exact(trained, "ncm")
    found.learn(digits([0, 1], 5), classes=NAMES)
    with pytest.raises(ValueError, match="digit 2 has 4 images to learn from, and the least is 5"):
        found.learn(digits([2], 4), classes=NAMES, minimum=5)
    assert found.classes == ("digit 0", "digit 1")


def test_other_methods_and_exact_heads_do_not_go_on_with_each_other(trained):
    found = exact(trained, "lda", **QUICK)
    found.learn(digits([0, 1]), classes=NAMES)
    for method in ("remix", "finetune"):
        found.use_method(method)
        with pytest.raises(ValueError, match=f"an exact head, which the method {method} cannot train: go on with lda"):
            found.learn(digits([2]), classes=NAMES)
    found.use_method("ncm")
    with pytest.raises(ValueError, match="has the sums of the method lda: go on with that"):
        found.learn(digits([2]), classes=NAMES)
    old = remix.load(STORED)  # of a version without sums
    assert old.method == "remix"
    old.use_method("lda")
    with pytest.raises(ValueError, match="keeps no sums of its classes, so the method lda cannot go on with it"):
        old.learn(digits([5]), classes=NAMES)


def test_what_an_exact_head_has_no_use_for_is_refused(trained):
    with pytest.raises(ValueError, match="the method lda freezes the whole network by itself: leave freeze"):
        exact(trained, "lda", freeze=2).learn(digits([0, 1]), classes=NAMES)
    with pytest.raises(ValueError, match=r"the method ncm has no covariance \(--covariance\)"):
        exact(trained, "ncm", covariance="dense").learn(digits([0, 1]), classes=NAMES)
    with pytest.raises(ValueError, match=r"the method remix has no minimum \(--minimum\)"):
        exact(trained, "remix", minimum=5).learn(digits([0, 1]), classes=NAMES)
    found = exact(trained, "ncm")
    found.learn(digits([0, 1]), classes=NAMES)
    with pytest.raises(ValueError, match="an exact head on features of its blocks"):
        found.dream(n=1)


def test_a_network_without_weights_is_trained_in_the_first_step_and_frozen_then():
    found = learner(method="lda")
    found.learn(digits([0, 1]), classes=NAMES)
    assert list(found.history[0].accuracies) == ["held-out images"]
    begun = weights_of(found.model)
    found.learn(digits([2]), classes=NAMES)
    assert found.history[1].images == (10,)
    after = weights_of(found.model)
    assert all(torch.equal(after[key], begun[key]) for key in begun if key.startswith("backbone."))
    assert found.model.frozen == 5
