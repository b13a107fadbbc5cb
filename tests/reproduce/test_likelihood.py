"""The likelihood of features, from pictures to figure."""

import csv
import json
from pathlib import Path

import pytest

from remix.cli import main
from remix.reproduce import likelihood as reproduce_likelihood
from remix.reproduce.likelihood import best_diagonal, table, verdict
from remix.reproduce.likelihood_features import class_folders
from remix.reproduce.likelihood_features import photographs as pictures_of
from remix.statistics import Memory


@pytest.mark.slow
def test_likelihood_from_pictures_to_figure(capsys, tmp_path, photographs, weights, monkeypatch):
    monkeypatch.setattr(reproduce_likelihood, "SIZE", 32)
    layers = {"layer2": "layer2.3:output", "layer4": "layer4.2:output"}
    monkeypatch.setattr(reproduce_likelihood, "LAYERS", layers)
    monkeypatch.setattr(reproduce_likelihood, "_EPOCHS", {"mini": 4})
    out = tmp_path / "out"
    words = ["reproduce", "likelihood", "--data", str(photographs), "--weights", str(weights), "--out", str(out)]
    main(words)
    shown = capsys.readouterr().out
    record = json.loads((out / "likelihood.json").read_text())
    assert set(record["layers"]) == set(layers)
    layer = record["layers"]["layer2"]
    models = [curve["model"] for curve in layer["curves"]]
    assert models[:3] == ["diagonal", "diagonal, shrunk variances", "Laplace"]
    assert models[-2:] == ["Laplace + DCT", "published recipe"]
    assert layer["dim"] == 128 * 4 * 4
    assert [layer["train"], layer["held_out"]] == [80, 40]
    for curve in layer["curves"]:
        assert len(curve["steps"]) == len(curve["train"]) == len(curve["held_out"])
        assert curve["peak"] > 10**7
    laplace = next(curve for curve in layer["curves"] if curve["model"] == "Laplace")
    assert laplace["steps"][0] == 0
    assert len(laplace["steps"]) > 3
    assert laplace["held_out"][-1] >= best_diagonal(layer, "held_out")
    with (out / "likelihood.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == sum(len(c["steps"]) for one in record["layers"].values() for c in one["curves"])
    assert (out / "likelihood.png").read_bytes().startswith(b"\x89PNG")
    assert table(record["layers"]) in shown
    kept = Memory.load(out / "layer2-laplace-dct.safetensors").layers["layer2.3:output:map"]
    assert kept.normal.basis is not None
    times = [file.stat().st_mtime_ns for file in out.glob("layer*.json")]
    main([*words, "--resume"])
    assert times == [file.stat().st_mtime_ns for file in out.glob("layer*.json")]


def test_verdict_compares_with_the_better_diagonal():
    curve = lambda model, train, held: {"model": model, "train": train, "held_out": held}  # noqa: E731
    layer = {
        "curves": [
            curve("diagonal", [10.0], [-50.0]),
            curve("diagonal, shrunk variances", [9.0], [5.0]),
            curve("Laplace", [10.5, 12.0], [4.0, 6.0]),
            curve("published recipe", [-3.0, 11.0], [-9.0, 4.0]),
        ]
    }
    found = verdict(layer)
    assert list(found["Laplace"].values()) == [True, True]
    assert list(found["published recipe"].values()) == [False, False]


def test_the_committed_likelihoods_say_what_their_page_says():
    """Ours is above the diagonal at every step of all 16 sets, on both parts; the published recipe begins below."""
    with (Path(__file__).parents[2] / "docs" / "reproduce" / "likelihood.csv").open() as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["model"].startswith("Laplace")]
    assert len({row["features"] for row in ours}) == 16
    assert all(float(row[part]) > 0 for row in ours for part in ("train_gain_per_dim", "held_out_gain_per_dim"))
    first = [row for row in rows if row["model"] == "published recipe" and row["step"] == "0"]
    assert len(first) == 16
    assert all(float(row["train_gain_per_dim"]) < 0 for row in first)


def test_the_plan_counts_photographs_and_says_what_is_there(capsys, tmp_path, photographs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "layer3.json").write_text("{}")
    words = ["reproduce", "likelihood", "--data", str(photographs), "--weights", "not opened", "--dry-run"]
    main([*words, "--classes", "class3,class1,class0", "--out", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert "photos has train/NAME/ and val/NAME/ with photographs of class3, class1, class0: train to fit" in shown
    assert shown.count("60 + 30") == 4
    assert [line.split("│")[2].strip() for line in shown.splitlines() if "layer" in line] == [
        "200,704", "100,352", "50,176", "25,088",
    ]  # fmt: skip
    assert shown.count("to do") == 3
    assert shown.count("there") == 1


def test_photographs_are_those_of_the_classes_asked_for(photographs):
    folder, classes = class_folders(str(photographs), "mini", ("class3", "class1"))
    train, held = pictures_of(folder, classes, 32, "mini")
    assert train.counts() == {"class3": 20, "class1": 20}
    assert held.counts() == {"class3": 10, "class1": 10}
    assert class_folders(str(photographs), "mini", None)[1] == ("class0", "class1", "class2", "class3")
