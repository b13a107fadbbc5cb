"""`remix evaluate`: accuracies that can be counted by hand."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from remix.deploy.evaluation import Evaluation, evaluate_folder


@pytest.fixture
def mislabelled(digits, tmp_path):
    """Ten zeros; ten ones and three zeros that are called ones; two twos."""
    root = tmp_path / "test"
    shutil.copytree(digits / "zero", root / "zero")
    shutil.copytree(digits / "one", root / "one")
    for k in range(3):
        shutil.copy(digits / "zero" / f"{k}.png", root / "one" / f"zero-{k}.png")
    (root / "two").mkdir()
    for k in range(2):
        shutil.copy(digits / "two" / f"{k}.png", root / "two")
    return root


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
    pairs = Evaluation(("a", "b", "c"), counts, {}, ()).confusions(2)
    assert [(pair.name, pair.read_as, pair.images) for pair in pairs] == [("b", "a", 7), ("a", "b", 2)]


def test_the_test_part_is_used_where_there_is_one(model, digits, tmp_path):
    shutil.copytree(digits, tmp_path / "parts" / "train")
    shutil.copytree(digits / "one", tmp_path / "parts" / "val" / "one")
    assert evaluate_folder(model, tmp_path / "parts").images == 10


def test_formats_agree(remix, model_file, mislabelled):
    _, table, err = remix("evaluate", model_file, mislabelled)
    assert err == "the folder has no images of 1 classes of the model: drei ³\n"
    assert "(macro)  92.31%" in table
    assert "(micro)  88.00%" in table
    assert [line.split() for line in table.splitlines()][2] == ["one", "13", "10", "76.9%"]
    content = json.loads(remix("evaluate", model_file, mislabelled, "--format", "json")[1])
    assert content["accuracy_micro"] == 88.0
    assert content["classes_without_images"] == ["drei ³"]
    assert content["confusions"] == [{"class": "one", "read_as": "zero", "images": 3, "share": 23.0769}]
    rows = list(csv.DictReader(io.StringIO(remix("evaluate", model_file, mislabelled, "--format", "csv")[1])))
    assert [row["kind"] for row in rows] == ["class", "class", "class", "macro", "micro", "pair"]
    assert rows[3]["accuracy"] == "92.3077"


def test_classes_that_the_model_does_not_know(remix, model_file, mislabelled, digits, tmp_path):
    shutil.copytree(digits / "two", mislabelled / "seven")
    status, out, err = remix("evaluate", model_file, mislabelled)
    assert status == 0
    assert "(micro)  88.00%" in out
    assert "WARNING: not tested, because the model does not know these classes: seven (10 files)" in err
    shutil.copytree(digits / "two", tmp_path / "foreign" / "seven")
    status, _, err = remix("evaluate", model_file, tmp_path / "foreign")
    assert status == 2
    assert "knows none of the classes" in err
    assert "seven; it knows zero, one, two, drei ³" in err


def test_bad_files_and_folders(remix, model_file, mislabelled, tmp_path):
    (mislabelled / "zero" / "bad.png").write_text("hello")
    status, out, err = remix("evaluate", model_file, mislabelled)
    assert status == 0
    assert "(micro)  88.00%" in out
    assert "bad.png: not an image" in err
    only = tmp_path / "only" / "zero"
    only.mkdir(parents=True)
    (only / "bad.png").write_text("hello")
    status, _, err = remix("evaluate", model_file, tmp_path / "only")
    assert status == 2
    assert "no image in" in err
    (tmp_path / "only" / "one").mkdir()
    assert "no image" in remix("evaluate", model_file, tmp_path / "only")[2]
    assert "there is no folder" in remix("evaluate", model_file, tmp_path / "nowhere")[2]
    assert "--format knows" in remix("evaluate", model_file, mislabelled, "--format", "xml")[2]
