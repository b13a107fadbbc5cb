"""`remix classes` as a person types it."""

from __future__ import annotations

import pytest

import remix
from remix.cli import main
from tests.deploy.small import folder

FIRST = ["--backbone", "convnet8", "--options", "width=4", "--epochs", "1", "--method", "lda"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of two steps: digits 0, 1, 2, and 3 with a class whose name has a comma and an equals sign."""
    root = tmp_path_factory.mktemp("classes")
    folder(root / "first", [0, 1, 2])
    folder(root / "more", [3, 4])
    (root / "more" / "digit 4").rename(root / "more" / "2+2=4, at last")
    main(["learn", str(root / "first"), "--out", str(root / "one.remix"), *FIRST])
    main(["learn", str(root / "one.remix"), str(root / "more"), "--out", str(root / "two.remix")])
    return root / "two.remix"


def classes(*words):
    main(["classes", *map(str, words)])


def refused(capsys, *words):
    """The one sentence on standard error with which the command ends."""
    with pytest.raises(SystemExit) as ended:
        classes(*words)
    assert ended.value.code == 2
    text = " ".join(capsys.readouterr().err.split())
    assert text.startswith("remix classes:")
    return text


def test_without_a_change_classes_are_listed_with_counts_and_steps(model, capsys):
    classes(model)
    shown = capsys.readouterr().out
    rows = [line.split("  ") for line in shown.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["0", "digit 0", "8", "1"] in cells  # a fifth was held out while the network was trained
    assert ["4", "digit 3", "10", "2"] in cells
    assert "the model can go back to step 1 (--to-step)" in shown
    assert "if a class is removed, this stays: the weights of the network" in shown


def test_names_removals_and_mergers_are_typed_together(model, capsys, tmp_path):
    before = model.read_bytes()
    out = tmp_path / "new.remix"
    words = ["--rename", "digit 0=zero", "2+2=4, at last=four", "--remove", "digit 3", "--merge", "digit 1,digit 2=low"]
    classes(model, *words, "--out", out)
    said = capsys.readouterr()
    assert remix.load(out).classes == ("zero", "low", "four")
    assert "renamed 'digit 0' to 'zero'" in said.out
    assert "removed 1 class" in said.out
    assert "new.remix: 3 classes" in said.out
    assert "what stays: the scatter of features is of all classes together" in said.err
    assert model.read_bytes() == before
    main(["inspect", str(out)])
    assert "merged 'digit 1' and 'digit 2' into 'low'" in capsys.readouterr().out


def test_going_back_writes_the_earlier_model(model, capsys, tmp_path):
    classes(model, "--to-step", 1, "--out", tmp_path / "earlier.remix")
    assert "went back to step 1, without step 2" in capsys.readouterr().out
    found, expected = remix.load(tmp_path / "earlier.remix"), remix.load(model.with_name("one.remix"))
    assert found.classes == expected.classes
    mine, theirs = (one.model.classifier.head.weight for one in (found, expected))
    assert float((mine - theirs).abs().max()) <= 1e-6 * float(theirs.abs().max())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "OUT"], "nothing is to be changed: add --rename"),
        (["--remove", "digit 0"], "is never changed: name the file to write with --out"),
        (["--remove", "digit 0", "--to-step", "1", "--out", "OUT"], "--to-step goes alone"),
        (["--remove", "digit 0", "--out", "MODEL"], "is the model itself, which is never changed"),
        (["--remove", "digit 7", "--out", "OUT"], "there is no class 'digit 7' (did you mean"),
        (
            ["--remove", "digit 0", "digit 1", "digit 2", "digit 3", "2+2=4, at last", "--out", "OUT"],
            "no class would be",
        ),
        (["--rename", "digit 0", "--out", "OUT"], "--rename must look like OLD=NEW, got digit 0"),
        (["--rename", "digit 0=digit 1", "--out", "OUT"], "there is a class 'digit 1' already"),
        (["--rename", "digit 0=a", "digit 0=b", "--out", "OUT"], "digit 0 is named twice"),
        (["--merge", "digit 0,digit 0=x", "--out", "OUT"], "merge two or more different classes"),
        (["--merge", "digit 0=x", "--out", "OUT"], "merge two or more different classes"),
        (["--to-step", "2", "--out", "OUT"], "what 2 steps made of it; earlier ones: 1; got 2"),
        (["--to-step", "1", "--out", "OUT/x.remix"], "there is no folder"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(words, sentence, model, capsys, tmp_path):
    places = {"OUT": tmp_path / "new.remix", "MODEL": model, "OUT/x.remix": tmp_path / "nowhere" / "x.remix"}
    before = model.read_bytes()
    assert sentence in refused(capsys, model, *(places.get(word, word) for word in words))
    assert not list(tmp_path.iterdir())
    assert model.read_bytes() == before


def test_a_file_that_is_there_is_replaced_only_if_asked(model, capsys, tmp_path):
    out = tmp_path / "new.remix"
    out.write_text("mine")
    assert "exists already" in refused(capsys, model, "--remove", "digit 0", "--out", out)
    assert out.read_text() == "mine"
    classes(model, "--remove", "digit 0", "--out", out, "--overwrite")
    assert len(remix.load(out).classes) == 4
