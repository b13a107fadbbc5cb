"""What a person is told or asked about a step of learning."""

from dataclasses import replace

import pytest

import remix
from remix.data import DataError
from remix.deploy.advice import check_similar_names, near_chance
from tests.deploy.small import NAMES, digits, learner


def test_a_network_that_begins_untrained_on_few_images_is_warned_of():
    found = learner()
    few, enough = (found.intake(digits([0, 1], each=each), NAMES) for each in (20, 130))
    assert "begins untrained, with 16 images per class" in found.warnings(few)[0]
    assert not found.warnings(enough)
    trained = learner()
    trained._network = replace(trained._network, provenance={"weights": "w.safetensors"})
    assert not trained.warnings(few)


def test_an_accuracy_is_near_chance_up_to_two_deviations_of_guessing():
    # 100 images, 4 classes: 25 % and 2 * sqrt(0.25 * 0.75 / 100) = 8.7 points
    assert near_chance(33.0, 100, 4)
    assert not near_chance(34.0, 100, 4)
    assert "guessing among 4 classes gives (25.0 %)" in near_chance(20.0, 100, 4)[0]
    assert not near_chance(100.0, 1, 1)  # one new class: nothing to guess among


def test_a_step_that_has_not_learned_says_so():
    found = learner(epochs=1, lr=1e-9)
    found.learn(digits([0, 1, 2, 3], each=30), classes=NAMES)
    assert any("it has not learned" in note for note in found.notes)


def test_notes_are_kept_with_their_step(tmp_path):
    found = learner(holdout=0.0)
    found.learn(digits([0, 1]), classes=NAMES)
    first = found.notes
    assert any("nothing is held out" in note for note in first)
    found.learn(digits([2, 3], each=20), classes=NAMES, holdout=0.2)
    found.save(tmp_path / "m.remix")
    again = remix.load(tmp_path / "m.remix")
    assert again.history[0].notes == first
    assert again.notes == found.notes != first


@pytest.mark.parametrize("name", ["Digit 0", "digit 0 ", " digit  0", "DIGIT 0"])
def test_names_that_differ_in_case_or_spaces_are_refused_until_they_are_meant(name):
    with pytest.raises(DataError, match=r"differ only in case or spaces.*--similar-names \(similar_names=True\)"):
        check_similar_names(["digit 0", "digit 1"], [name])
    with pytest.raises(DataError, match="differ only in case or spaces"):
        check_similar_names([], ["digit 0", name])
    check_similar_names(["digit 0"], ["digit 1", "digit0"])


def test_similar_names_can_be_meant():
    found = learner()
    found.learn(digits([0, 1]), classes=["a", "b"])
    with pytest.raises(DataError, match="'a' and 'A'"):
        found.learn(digits([0, 1]), classes=["A", "B"])
    found.learn(digits([0, 1]), classes=["A", "B"], similar_names=True)
    assert found.classes == ("a", "b", "A", "B")
