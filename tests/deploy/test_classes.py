"""Classes of a model are renamed, removed and merged, and steps undone: exactly, or a sentence says why not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import remix
from remix.deploy.classes import abilities, back_to, change_classes, taught_classes
from remix.learning import Model
from remix.methods import create_method
from remix.networks import ExactLinearHead
from remix.statistics import ClassSums
from tests.deploy.small import NAMES, NETWORK, digits, learner, weights_of

HEADS = ("ncm", "lda", "fecam", "ranpac")
STORED = Path(__file__).parent.parent / "learning" / "files"
STEPS = (([0, 1, 2], 10), ([3], 12), ([1, 4], 15))
"""Digits, and images of each."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Weights of a network that was trained on three digits."""
    first = learner(epochs=8, seed=1)
    first.learn(digits([7, 8, 9], 30), classes=NAMES)
    path = tmp_path_factory.mktemp("weights") / "convnet8.safetensors"
    save_file(first.model.classifier.backbone.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def dreaming():
    """A model of two steps with a trained head, by the method remix."""
    found = learner()
    found.learn(digits([0, 1, 2]), classes=NAMES)
    found.learn(digits([3]), classes=NAMES)
    return found.model


@cache
def steps(trained, method, **changes) -> list[Model]:
    """The models after each of three steps: three digits, one, and further images of one with another."""
    found, models = remix.Learner(**NETWORK, method=method, weights=trained, **changes), []
    for classes, each in STEPS:
        found.learn(digits(classes, each), classes=NAMES, extend=True)
        models.append(found.model)
    return models


def reloaded(model: Model, path) -> Model:
    remix.Learner.of(model).save(path)
    return remix.load(path).model


def sums_of(model: Model) -> ClassSums:
    return model.memory.get(ClassSums.name)


def assert_same_sums(one: Model, other: Model, tolerance: float = 0.0) -> None:
    mine, theirs = sums_of(one), sums_of(other)
    assert (mine.labels, mine.counts, mine.method) == (theirs.labels, theirs.counts, theirs.method)
    pairs = [(mine.mean, theirs.mean)] + [(t, theirs.scatter.tensors[name]) for name, t in mine.scatter.tensors.items()]
    for tensor, expected in pairs:
        assert float((tensor - expected).abs().max()) <= tolerance * float(expected.abs().max())


def assert_same_head(one: Model, other: Model, tolerance: float = 1e-6) -> None:
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.keys() == theirs.keys()
    assert one.classifier.head.task_sizes == other.classifier.head.task_sizes
    for name, tensor in mine.items():
        assert float((tensor - theirs[name]).abs().max()) <= tolerance * max(float(theirs[name].abs().max()), 1e-30)


def summed(model: Model, classes: list[int], each: int, labels: dict[int, int]) -> ClassSums:
    """The slow twin: sums of digits under other labels, of the features of a model."""
    data = remix.Learner.of(model).intake(digits(classes, each), NAMES).train
    images, which = data.batch(range(len(data)))
    digit = [NAMES.index(data.classes[int(one)]) for one in which]
    with torch.no_grad():
        pooled = model.classifier.pooled(model.preprocessing.normalisation.normalise(images).float())
    rows, chosen = model.classifier.head.map(pooled).double(), sums_of(model)
    return ClassSums.of(rows, torch.tensor([labels[one] for one in digit]), chosen.scatter.kind, chosen.own)


def assert_solved_from(model: Model, parts: list[ClassSums]) -> None:
    """Sums and head are those of these parts, with the choices of the model."""
    expected, found = parts[0], sums_of(model)
    for part in parts[1:]:
        expected = expected.merge(part)
    expected = replace(expected, method=found.method, strength=found.strength, scale=found.scale)
    assert (found.labels, found.counts, found.mixed) == (expected.labels, expected.counts, 0)
    assert torch.allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-7)
    for name, tensor in expected.scatter.tensors.items():
        assert torch.allclose(found.scatter.tensors[name], tensor, rtol=1e-6, atol=1e-6 * float(tensor.abs().max()))
    head = model.classifier.head
    room = ExactLinearHead(head.map, head.task_sizes)
    solved = create_method(found.method).solved(expected, head.map, room, expected.labels).head.state_dict()
    for name, tensor in head.state_dict().items():
        other = solved[name] * (found.scale if name == "scale" else 1)
        assert float((tensor - other).abs().max()) <= 1e-5 * float(other.abs().max())  # features in single precision


# --- back to an earlier step ---


@pytest.mark.parametrize("method", HEADS)
def test_going_back_gives_the_model_as_it_was_after_the_step(method, trained, tmp_path):
    models = steps(trained, method)
    last = reloaded(models[-1], tmp_path / "last.remix")
    for step in (1, 2):
        earlier, expected = back_to(last, step), models[step - 1]
        assert earlier.classes == expected.classes
        assert earlier.memory.classes == expected.memory.classes
        assert earlier.memory.tasks == expected.memory.tasks
        assert_same_sums(earlier, expected)
        assert sums_of(earlier).describe() == sums_of(expected).describe()
        assert len(sums_of(earlier).parts) == step
        assert_same_head(earlier, expected)
        assert [one.classes for one in earlier.history] == [one.classes for one in expected.history]
        assert f"went back to step {step}, without step" in earlier.history[-1].notes[-1]
    assert last.classes == models[-1].classes  # the given model is as it was


def test_after_going_back_one_learns_on_as_if_nothing_had_been(trained):
    models = steps(trained, "lda")
    learners = [remix.Learner.of(models[-1]), remix.Learner.of(models[0])]
    learners[0].back_to(1)
    for one in learners:
        one.learn(digits([5]), classes=NAMES)
    assert_same_head(learners[0].model, learners[1].model)
    assert learners[0].classes == ("digit 0", "digit 1", "digit 2", "digit 5")


def test_names_that_were_changed_and_classes_that_were_removed_stay_so_after_going_back(trained):
    last = steps(trained, "lda")[-1]
    changed, _ = change_classes(last, rename={"digit 0": "zero"}, remove=["digit 2"])
    assert back_to(changed, 1).classes == ("zero", "digit 1")


def test_more_than_ten_steps_are_kept_together_from_the_oldest_on(trained, monkeypatch):
    monkeypatch.setattr("remix.statistics.class_sums._APART", 2)
    models = steps.__wrapped__(trained, "lda")
    assert len(sums_of(models[-1]).steps) == 2
    assert_same_sums(back_to(models[-1], 2), models[1])
    with pytest.raises(ValueError, match="keeps the sums of steps 1 to 2 as one; use the file of that step"):
        back_to(models[-1], 1)


def test_a_file_of_an_earlier_version_without_sums_of_steps_says_so_and_goes_on():
    last = remix.load(STORED / "model-v2-lda.remix").model
    assert any("cannot go back to step 2: the file keeps the sums of steps 1 to 3 as one" in s for s in abilities(last))
    with pytest.raises(ValueError, match="keeps the sums of steps 1 to 3 as one; use the file of that step"):
        back_to(last, 2)
    more = remix.Learner.of(last)
    more.learn(digits([6]), classes=NAMES)
    assert_same_head(back_to(more.model, 3), last)
    merged, _ = change_classes(last, merge={"low": ["digit 0", "digit 3"]})
    assert merged.classes == ("low", "digit 1", "digit 2")
    assert sums_of(merged).counts == (10, 10, 5)
    rest, stays = change_classes(last, remove=["digit 2"])
    assert sums_of(rest).mixed == 4
    assert any("the scatter of features is of all classes together" in one for one in stays)


def test_a_model_of_an_earlier_version_without_sums_keeps_its_method_and_says_what_it_can_do():
    old = remix.load(STORED / "model-v2.remix")
    told = " ".join(abilities(old.model))
    assert "cannot go back to step 1: only exact heads keep sums of their steps" in told
    assert "classes cannot be merged in this model" in told
    assert "if a class is removed, this stays: the weights of the network" in told
    assert old.method == "remix"
    name = old.classes[1]
    old.change_classes(rename={old.classes[0]: "first"}, remove=[name])
    assert old.classes[0] == "first"
    assert name not in old.classes
    assert old.model.memory.gaussians.labels == (0, 1, 2)
    assert old.predict(digits([0])[0], top=1).names


def test_a_fitted_covariance_and_trained_weights_cannot_be_undone(trained, dreaming):
    fitted = remix.Learner(**NETWORK, method="lda", weights=trained, covariance="laplace")
    for label in ([0, 1], [2]):
        fitted.learn(digits(label), classes=NAMES)
    with pytest.raises(ValueError, match="Laplace covariance is fitted to all steps together; use the file"):
        fitted.back_to(1)
    with pytest.raises(ValueError, match="only exact heads keep sums of their steps, others train weights; use the"):
        back_to(dreaming, 1)


def test_a_step_that_trained_the_weights_since_cannot_be_undone(trained):
    last = steps(trained, "lda")[-1]
    history = (last.history[0], replace(last.history[1], method="remix"), last.history[2])
    mixed = replace(last, history=history)
    assert len(back_to(mixed, 2).classes) == 4
    with pytest.raises(ValueError, match=r"cannot go back to step 1: .* others train weights"):
        back_to(mixed, 1)


@pytest.mark.parametrize("step", [0, 3, 4, -1])
def test_a_step_that_is_not_before_the_last_is_refused(step, trained):
    with pytest.raises(ValueError, match=rf"what 3 steps made of it; earlier ones: 1 to 2; got {step}"):
        back_to(steps(trained, "ncm")[-1], step)


# --- merging ---


@pytest.mark.parametrize("method", HEADS)
def test_merged_classes_are_as_learned_from_one_folder(method, trained):
    apart = steps(trained, method)[-1]
    merged, stays = change_classes(apart, merge={"both": ["digit 2", "digit 1", "digit 3"]})
    assert stays == ()
    assert merged.classes == ("digit 0", "both", "digit 4")
    assert [record.images for record in merged.memory.classes] == [10, 47, 15]
    labels = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2}
    assert_solved_from(merged, [summed(apart, *step, labels) for step in STEPS])
    assert merged.classifier.head.task_sizes == (2, 1)
    assert [(step.classes, step.images, step.extended) for step in merged.history] == [
        (("digit 0", "both"), (10, 20), ()),
        (("both",), (12,), ("both",)),
        (("both", "digit 4"), (15, 15), ("both",)),
    ]


def test_classes_of_a_fitted_covariance_are_merged_by_fitting_again(trained):
    fitted = remix.Learner(**NETWORK, method="lda", weights=trained, covariance="laplace")
    fitted.learn(digits([0, 1, 2]), classes=NAMES)
    before = sums_of(fitted.model).scatter.squares()
    fitted.change_classes(merge={"digit 1": ["digit 1", "digit 2"]})
    assert fitted.classes == ("digit 0", "digit 1")
    assert bool((sums_of(fitted.model).scatter.squares() >= before * (1 - 1e-9)).all())


def test_classes_of_a_trained_head_are_not_merged(dreaming):
    with pytest.raises(
        ValueError, match=r"only exact heads .* no output of a trained head gives the probability of two"
    ):
        change_classes(dreaming, merge={"both": ["digit 1", "digit 2"]})


# --- removing ---


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


def test_what_still_mixes_a_removed_class_in_is_said(trained, dreaming):
    models = steps(trained, "lda")
    _, stays = change_classes(models[-1], remove=["digit 0"])
    assert any("scatter of features" in one for one in stays)
    assert any("was chosen with its images" in one for one in stays)
    assert not any("weights" in one for one in stays)  # of a network that came with them
    alone, stays = change_classes(models[1], remove=["digit 3"])  # whose step had no other class: its scatter goes
    assert stays == ()
    assert_same_sums(alone, models[0])
    assert_same_head(alone, models[0])
    _, stays = change_classes(dreaming, remove=["digit 3"])
    assert any("activations are of the images of all classes" in one for one in stays)
    assert any("weights of the network" in one for one in stays)
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


# --- names, and what is refused ---


def test_renaming_changes_names_only(dreaming, trained):
    for model in (dreaming, steps(trained, "lda")[-1]):
        found, stays = change_classes(model, rename={"digit 1": "one", "digit 0": "zero"})
        assert stays == ()
        assert found.classes == ("zero", "one", *model.classes[2:])
        assert [record.images for record in found.memory.classes] == [r.images for r in model.memory.classes]
        assert all(torch.equal(tensor, weights_of(model)[key]) for key, tensor in weights_of(found).items())
        assert found.history[0].classes == ("zero", "one", "digit 2")
        assert "renamed 'digit 1' to 'one'; renamed 'digit 0' to 'zero'" in found.history[-1].notes[-1]
        before, after = model.memory.to_tensors()[0], found.memory.to_tensors()[0]
        assert all(torch.equal(tensor, before[key]) for key, tensor in after.items())


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "nothing is to be changed"),
        ({"remove": ["digit 0", "digit 1", "digit 2", "digit 3"]}, "no class would be left"),
        ({"rename": {"digit 0": "digit 1"}}, "there is a class 'digit 1' already: choose another name, or merge"),
        ({"rename": {"digit 0": "digit 0"}}, "there is a class 'digit 0' already"),
        ({"rename": {"digit 0": "x", "digit 1": "x"}}, "two classes would have the same name"),
        ({"rename": {"digit 0": "a/b"}}, "slashes"),
        ({"rename": {"digit 0": ""}}, "is not a name for a class"),
        ({"rename": {"digit": "x"}}, "there is no class 'digit' .*did you mean"),
        ({"remove": ["nine"]}, "there is no class 'nine'"),
        ({"remove": ["digit 0"], "rename": {"digit 0": "x"}}, "'digit 0' is named twice"),
        ({"remove": ["digit 0", "digit 0"]}, "'digit 0' is named twice"),
        ({"merge": {"x": ["digit 0", "digit 0"]}}, "merge two or more different classes"),
        ({"merge": {"x": ["digit 0"]}}, "merge two or more different classes"),
        ({"merge": {"digit 2": ["digit 0", "digit 1"]}}, "there is a class 'digit 2' already"),
        ({"merge": {"x": ["digit 0", "ten"]}}, "there is no class 'ten'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(asked, sentence, dreaming):
    with pytest.raises(ValueError, match=sentence):
        change_classes(dreaming, **asked)


def test_classes_are_listed_with_the_steps_that_taught_them(trained, dreaming):
    found = taught_classes(steps(trained, "lda")[-1])
    assert [(one.name, one.images, one.steps) for one in found] == [
        ("digit 0", 10, (1,)),
        ("digit 1", 25, (1, 3)),
        ("digit 2", 10, (1,)),
        ("digit 3", 12, (2,)),
        ("digit 4", 15, (3,)),
    ]
    untold = replace(dreaming, history=())
    assert [one.steps for one in taught_classes(untold)] == [(1,), (1,), (1,), (2,)]
    assert [one.steps for one in taught_classes(replace(untold, memory=None))] == [()] * 4


def test_a_change_of_a_model_without_history_is_told_in_its_provenance(dreaming):
    found, _ = change_classes(replace(dreaming, history=()), rename={"digit 0": "zero"})
    assert found.provenance["changed"] == "renamed 'digit 0' to 'zero'"
