"""What is left of a class that was removed: nothing that was its own, and what is shared is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import remix
from remix.deploy.classes import change_classes
from remix.learning import Model
from tests.deploy.small import NAMES, NETWORK, digits, learner
from tests.deploy.three_steps import (
    HEADS,
    assert_same_head,
    assert_same_sums,
    assert_solved_from,
    reloaded,
    steps,
    summed,
    sums_of,
)  # fmt: skip


def own_bytes(model: Model, label: int) -> list[bytes]:
    """Everything in a model that is of one class alone, as its file holds it."""
    found = []
    for one in (sums_of(model), model.memory.gaussians, model.memory.selectors):
        for part in getattr(one, "parts", (one,)) if one is not None else ():
            if label in part.labels:
                place, size = part.labels.index(label), len(part.labels)
                tensors = [tensor for tensor in part.tensors().values() if len(tensor) == size > 1]
                found += [tensor[place].contiguous().numpy().tobytes() for tensor in tensors]
    head = model.classifier.head.state_dict()
    classes, first = len(model.classes), 0
    for name, tensor in head.items():
        if tensor.dim() and len(tensor) == classes:
            found.append(tensor[label].contiguous().numpy().tobytes())
        elif name.startswith("classifiers."):
            if first <= label < first + len(tensor):
                found.append(tensor[label - first].contiguous().numpy().tobytes())
            first += len(tensor)
    return [piece for piece in found if len(piece) > 8 and any(piece)]


@pytest.mark.parametrize("method", [*HEADS, "removable lda", "remix"])
def test_no_byte_that_is_of_a_removed_class_alone_is_in_the_new_file(method, trained, dreaming, tmp_path):
    if method == "remix":
        model = dreaming
    else:
        model = steps(trained, method.split()[-1], removable=method.startswith("removable"))[-1]
    remix.Learner.of(model).save(tmp_path / "before.remix")
    model = remix.load(tmp_path / "before.remix").model
    pieces = own_bytes(model, 1)
    before = (tmp_path / "before.remix").read_bytes()
    assert len(pieces) >= 2
    assert all(piece in before for piece in pieces)
    changed, _ = change_classes(model, remove=["digit 1"])
    again = reloaded(changed, tmp_path / "after.remix")
    after = (tmp_path / "after.remix").read_bytes()
    assert not any(piece in after for piece in pieces)
    assert b"digit 1" not in after
    assert again.classes == ("digit 0", *model.classes[2:])
    assert any(piece in after for piece in own_bytes(model, 2))  # what is another's is
    if method == "remix":
        return
    images, labels = digits([0, 2, 3], 10)
    names = [found[0] for found in remix.Learner.of(again).predict(images, top=1).names]
    right = sum(name == NAMES[label] for name, label in zip(names, labels.tolist(), strict=True))
    assert right > 24


@pytest.mark.parametrize("method", HEADS)
def test_with_sums_per_class_a_removed_class_might_never_have_been(method, trained):
    whole = steps(trained, method, removable=True)[-1]
    rest, stays = change_classes(whole, remove=["digit 0", "digit 4"])
    assert len(stays) == 1
    assert "was chosen with its images" in stays[0]
    labels = {1: 0, 2: 1, 3: 2}
    assert_solved_from(rest, [summed(whole, *step, labels) for step in (([1, 2], 10), ([3], 12), ([1], 15))])


def test_sums_per_class_say_their_bytes_and_give_the_same_head(trained):
    plain, removable = (steps(trained, "lda", removable=own) for own in (False, True))
    assert_same_head(plain[-1], removable[-1])
    size = 8 * sums_of(plain[0]).scatter.tensors["scatter"].numel()
    told = [note for note in removable[0].history[0].notes if note.startswith("removable")]
    assert told == [f"removable: the scatter of each class takes {3 * size:,} bytes; one of all would take {size:,}"]


def test_sums_per_class_are_chosen_in_the_first_step_and_not_for_a_fit(trained):
    model = steps(trained, "lda")[0]
    with pytest.raises(ValueError, match=r"\(--removable\) is chosen in the first step"):
        remix.Learner.of(model, removable=True).learn(digits([5]), classes=NAMES)
    with pytest.raises(ValueError, match="a Laplace covariance is of all classes together"):
        steps(trained, "lda", removable=True, covariance="laplace")
    with pytest.raises(ValueError, match=r"the method remix has no removable \(--removable\): leave it out"):
        learner(removable=True).learn(digits([0, 1]), classes=NAMES)


def test_what_still_mixes_a_removed_class_in_is_said(trained, dreaming, tmp_path):
    models = steps(trained, "lda")
    _, stays = change_classes(models[-1], remove=["digit 0"])
    assert any("scatter of features" in one for one in stays)
    assert any("was chosen with its images" in one for one in stays)
    assert not any("weights" in one for one in stays)  # of a network that came with them
    alone, stays = change_classes(models[1], remove=["digit 3"])  # whose step had no other class: its scatter goes
    assert stays == ()
    assert_same_sums(alone, models[0])
    assert_same_head(alone, models[0])
    assert change_classes(reloaded(models[1], tmp_path / "model.remix"), remove=["digit 3"])[1] == ()
    _, stays = change_classes(dreaming, remove=["digit 3"])
    assert any("activations are of the images of all classes" in one for one in stays)
    assert any("weights of the network" in one for one in stays)
    adopted = replace(models[0], provenance={"adopted": "a network that was trained on these classes"})
    assert any("weights of the network" in one for one in change_classes(adopted, remove=["digit 1"])[1])
    scratch = remix.Learner(**NETWORK, method="lda", epochs=1)
    scratch.learn(digits([0, 1, 2]), classes=NAMES)
    assert any("weights of the network" in one for one in scratch.change_classes(remove=["digit 1"]))


def test_a_scatter_that_knows_a_removed_class_keeps_its_degrees_of_freedom(trained):
    whole = steps(trained, "lda")[0]
    rest, _ = change_classes(whole, remove=["digit 2"])
    assert sums_of(rest).freedom == sums_of(whole).freedom == 27
    assert sums_of(rest).mixed == 9


def test_a_model_without_statistics_loses_a_class_too(trained, dreaming):
    for model in (steps(trained, "lda")[-1], dreaming):
        bare = replace(model, memory=None)
        rest, stays = change_classes(bare, remove=["digit 1"])
        assert rest.classes == ("digit 0", *model.classes[2:])
        assert rest.memory is None
        assert stays
        images = torch.rand(3, 1, 8, 8)
        with torch.no_grad():
            kept = [label for label in range(len(model.classes)) if label != 1]
            assert torch.allclose(rest.classifier(images), model.classifier(images)[:, kept], atol=1e-5)
        with pytest.raises(ValueError, match="classes cannot be merged"):
            change_classes(bare, merge={"x": ["digit 0", "digit 1"]})


@pytest.mark.slow
def test_a_trained_model_learns_on_without_a_class(dreaming):
    rest = remix.Learner.of(dreaming, epochs=1, samples=4)
    rest.change_classes(remove=["digit 1"])
    assert rest.model.memory.gaussians.labels == (0, 1, 2)
    rest.learn(digits([1]), classes=NAMES)
    assert rest.classes == ("digit 0", "digit 2", "digit 3", "digit 1")


def test_all_classes_of_a_step_may_go(dreaming, trained):
    for model in (dreaming, steps(trained, "fecam")[1]):
        rest, _ = change_classes(model, remove=["digit 3"])
        assert len(rest.history) == len(rest.memory.tasks) == len(rest.classifier.head.task_sizes) == 1
    one, _ = change_classes(steps(trained, "lda")[-1], remove=["digit 0", "digit 1", "digit 2", "digit 3"])
    assert one.classes == ("digit 4",)
    more = remix.Learner.of(one)
    more.learn(digits([0]), classes=NAMES)
    assert more.classes == ("digit 4", "digit 0")
