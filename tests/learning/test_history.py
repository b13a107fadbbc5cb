"""A step of the history is plain, short and true to itself, or it is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from remix._version import __version__
from remix.learning import LearnStep
from remix.learning.history import with_changed_classes, with_note

STEP = LearnStep(("cat", "Bär"), (3, 4), "remix", {"held out": 97.5}, ("cat",), "second", "2026-11-16T03:00:00+01:00")


def test_it_comes_back_from_plain_json():
    assert LearnStep.from_dict(STEP.to_dict()) == STEP
    assert STEP.to_dict()["remix"] == __version__


def test_the_date_is_now_with_a_time_zone():
    date = datetime.fromisoformat(LearnStep(("cat",), (1,), "remix").date)
    assert date.tzinfo is not None
    assert abs((datetime.now(date.tzinfo) - date).total_seconds()) < 3600


def test_the_date_can_be_settled_so_that_equal_steps_are_equal(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert LearnStep(("cat",), (1,), "remix").date == "2023-11-14T22:13:20+00:00"
    for wrong in ("today", "9" * 30):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH must be seconds since 1970"):
            LearnStep(("cat",), (1,), "remix")


def test_accuracies_on_dreams_that_earlier_files_hold_are_not_read():
    old = {**STEP.to_dict(), "accuracies": {"old classes, dreams, before": 100.0, "old classes, dreams": 100.0}}
    assert LearnStep.from_dict(old).accuracies == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ("cat", "cat")}, "'cat' is there twice"),
        ({"classes": ("cat", "a/b")}, "slashes"),
        ({"images": (3,)}, "one number of images per class"),
        ({"images": (3, -1)}, "one number of images per class"),
        ({"images": (3, True)}, "one number of images per class"),
        ({"extended": ("dog",)}, "cannot extend"),
        ({"method": "x" * 300}, "method of a step must be a short text"),
        ({"name": "a\x1b[2J"}, "name of a step must be a short text"),
        ({"accuracies": {"held out": 101}}, "within 0..100"),
        ({"accuracies": {"held out": float("nan")}}, "within 0..100"),
        ({"accuracies": {"held out": "97"}}, "within 0..100"),
        ({"accuracies": {str(k): 1.0 for k in range(101)}}, "at most 100 accuracies"),
        ({"date": "yesterday"}, "ISO 8601"),
        ({"date": "2026-11-16T03:00:00"}, "ISO 8601 with a time zone"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(STEP, **change)


@pytest.mark.parametrize("value", [None, 5, [], {}, {"classes": ["cat"]}, STEP.to_dict() | {"more": 1}])
def test_what_is_no_step(value):
    with pytest.raises(ValueError, match="a step of its history is described as"):
        LearnStep.from_dict(value)
    with pytest.raises(ValueError, match="a step of its history is described as"):
        LearnStep.from_dict(STEP.to_dict() | {"classes": "cat"})


def test_a_history_follows_names_mergers_and_removals():
    notes = ("cat and owl are confused", "catalogue of notes")
    history = [
        LearnStep(("cat", "dog", "owl"), (3, 4, 5), "lda", notes=notes),
        LearnStep(("fox",), (6,), "lda"),
        LearnStep(("dog", "emu"), (7, 8), "lda", extended=("dog",)),
        LearnStep(("cat",), (9,), "lda", extended=("cat",)),
    ]
    found = with_changed_classes(history, {"cat": None, "dog": "Dog", "owl": "bird", "fox": "fox", "emu": "bird"})
    assert [(step.classes, step.images, step.extended) for step in found] == [
        (("Dog", "bird"), (4, 5), ()),
        (("fox",), (6,), ()),
        (("Dog", "bird"), (7, 8), ("Dog", "bird")),
    ]
    assert found[0].notes == ("catalogue of notes",)  # the other names a class that is gone


def test_a_note_has_a_time_and_the_oldest_ones_make_room(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    history: tuple[LearnStep, ...] = (STEP,)
    for number in range(60):
        history = with_note(history, f"change {number} " + "x" * 2000)
    assert len(history[-1].notes) == 50
    assert history[-1].notes[-1].startswith("2023-11-14 22:13: change 59")
    assert len(history[-1].notes[-1]) == 1000
