"""Accuracies that can be counted by hand."""

from __future__ import annotations

import shutil

import pytest

from remix.deploy.evaluation import Evaluation, evaluate_folder


def test_accuracies_and_confusions(model, mislabelled):
    found = evaluate_folder(model, mislabelled, batch=4)
    assert found.images == 25
    assert found.tested == (0, 1, 2)
    assert found.of_class(1) == (13, 10)
    assert found.micro == pytest.approx(100 * 22 / 25)
    assert found.macro == pytest.approx((100 + 100 * 10 / 13 + 100) / 3)
    (pair,) = found.confusions()
    assert (pair.name, pair.read_as, pair.images) == ("one", "zero", 3)
    assert pair.share == pytest.approx(300 / 13)


def test_the_most_confused_pairs_come_first():
    counts = {(0, 0): 5, (0, 1): 2, (1, 0): 7, (1, 1): 1, (1, 2): 2}
    pairs = Evaluation(("a", "b", "c"), counts, {}, (), 0.0).confusions(2)
    assert [(pair.name, pair.read_as, pair.images) for pair in pairs] == [("b", "a", 7), ("a", "b", 2)]


def test_the_test_part_is_used_where_there_is_one(model, digits, tmp_path):
    shutil.copytree(digits, tmp_path / "parts" / "train")
    shutil.copytree(digits / "one", tmp_path / "parts" / "val" / "one")
    assert evaluate_folder(model, tmp_path / "parts").images == 10


def test_printed_it_shows_each_class_or_the_least_of_many():
    few = Evaluation(("cat", "dog"), {(0, 0): 3, (0, 1): 1, (1, 1): 2}, {"emu": 4}, (), 0.0)
    assert repr(few).splitlines() == [
        "Evaluation: 83.3 % of 6 images right, mean over 2 classes 87.5 %",
        "  cat   75.0 %  of 4",
        "  dog  100.0 %  of 2",
        "  1 image of cat read as dog",
        "  unknown to the model, not counted: emu",
    ]
    names = tuple(f"bird {i}" for i in range(100))
    many = Evaluation(names, {(i, i): 1 for i in range(100)} | {(42, 0): 9}, {}, (), 0.0)
    lines = repr(many).splitlines()
    assert len(lines) == 13
    assert lines[2].split() == ["bird", "42", "10.0", "%", "of", "10"]
