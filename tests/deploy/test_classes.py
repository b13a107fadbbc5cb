"""Classes of a model are renamed and merged, and steps undone: exactly, or a sentence says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import remix
from remix.deploy.classes import abilities, back_to, change_classes, taught_classes
from tests.deploy.small import NAMES, NETWORK, digits, weights_of
from tests.deploy.three_steps import (
    HEADS,
    STEPS,
    assert_same_head,
    assert_same_sums,
    assert_solved_from,
    reloaded,
    steps,
    summed,
    sums_of,
)  # fmt: skip

STORED = Path(__file__).parent.parent / "learning" / "files"


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


def test_a_model_measured_by_an_earlier_version_says_which_method_can_go_on_with_it():
    old = remix.load(STORED / "model-v2.remix")
    with pytest.raises(ValueError, match=r"an earlier version measured the model, .* go on with --method lwf"):
        old.learn(digits([5, 6]), classes=NAMES)
    old.use_method("lwf")
    assert len(old.learn(digits([5, 6]), classes=NAMES, epochs=1).classes) == 2


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
