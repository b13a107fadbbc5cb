"""`remix evaluate`: accuracies that can be counted by hand, in every format."""

from __future__ import annotations

import csv
import io
import json
import shutil


def test_table_json_and_csv_agree(remix, model_file, mislabelled):
    _, table, err = remix("evaluate", model_file, mislabelled)
    assert err == "the folder has no images of 1 classes of the model: drei ³\n"
    assert "(macro)  92.31%" in table
    assert "(micro)  88.00%" in table
    assert [line.split() for line in table.splitlines()][2] == ["one", "13", "10", "76.9%"]
    content = json.loads(remix("evaluate", model_file, mislabelled, "--format", "json")[1])
    assert content["accuracy_micro"] == 88.0
    assert f"(15 bins)  {content['calibration_error']:.2f}%" in table
    assert 0 < content["calibration_error"] < 30
    assert content["classes_without_images"] == ["drei ³"]
    assert content["confusions"] == [{"class": "one", "read_as": "zero", "images": 3, "share": 23.0769}]
    rows = list(csv.DictReader(io.StringIO(remix("evaluate", model_file, mislabelled, "--format", "csv")[1])))
    assert [row["kind"] for row in rows] == ["class", "class", "class", "macro", "micro", "pair"]
    assert rows[3]["accuracy"] == "92.3077"


def test_classes_that_the_model_does_not_know_are_told(remix, model_file, mislabelled, digits, tmp_path):
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


def test_bad_files_are_listed_and_folders_without_images_refused(remix, model_file, mislabelled, tmp_path):
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
