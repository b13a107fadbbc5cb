"""`remix learn` as a person types it."""

import errno
import os
import re
import signal
import subprocess
import sys

import pytest
from rich.console import Console

import remix
from remix.cli import main
from remix.deploy.learning_monitor import LearningMonitor
from remix.support.display import Display
from tests.deploy.small import folder

QUICK = ["--epochs", "2", "--samples", "6", "--batch", "16"]
FIRST = ["--backbone", "convnet8", "--options", "width=4", *QUICK]


def learn(*words):
    main(["learn", *map(str, words)])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders of digits and a first model."""
    root = tmp_path_factory.mktemp("learn")
    folder(root / "first", [0, 1, 2])
    folder(root / "more", [3, 4])
    learn(root / "first", "--out", root / "model.remix", *FIRST)
    return root


def refused(capsys, *words, status=2):
    """The one sentence on standard error with which a command ends."""
    with pytest.raises(SystemExit) as ended:
        learn(*words)
    assert ended.value.code == status
    said = capsys.readouterr()
    text = (said.err or said.out).strip()
    assert text.startswith("remix learn:"), text
    return " ".join(text.split())


def test_first_classes_then_more(place, capsys):
    before = (place / "model.remix").read_bytes()
    learn(place / "model.remix", place / "more", "--out", place / "model2.remix", "--check", place / "first", *QUICK)
    shown = capsys.readouterr().out
    assert re.search(r"2 new +│ held-out images", shown)
    assert re.search(r"3 old +│ --check images +│ +[\d.]+ │ +[\d.]+", shown)
    assert "5 classes" in shown
    assert "no image in it" in shown
    assert (place / "model.remix").read_bytes() == before
    assert remix.load(place / "model2.remix").classes == ("digit 0", "digit 1", "digit 2", "digit 3", "digit 4")


def test_images_to_check_on_are_looked_at_before_any_work(place, capsys, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("remix.deploy.learner.learn_step", lambda *args, **more: pytest.fail("was trained"))
        refused(capsys, place / "first", "--out", tmp_path / "out.remix", "--check", tmp_path / "nowhere", *FIRST)
    out = tmp_path / "out.remix"
    learn(place / "model.remix", place / "more", "--out", out, "--check", place / "more", *QUICK)
    shown = capsys.readouterr().out
    assert re.search(r"2 new +│ --check images +│ +│ +[\d.]+", shown)
    assert not re.search(r"old +│ --check images", shown)
    other = folder(tmp_path / "other", [8, 9])
    learn(place / "model.remix", place / "more", "--out", out, "--overwrite", "--check", other, *QUICK)
    assert "has none of the model's classes" in " ".join(capsys.readouterr().out.split())


def test_a_step_that_nothing_tests_says_so_instead_of_an_empty_table(place, capsys, tmp_path):
    learn(place / "first", "--out", tmp_path / "out.remix", "--holdout", "0", *FIRST)
    shown = " ".join(capsys.readouterr().out.split())
    assert "nothing could be tested; --check FOLDER tests on images of your own" in shown
    assert "accuracy in percent" not in shown


def test_a_known_class_needs_extend(place, capsys, tmp_path):
    again = folder(tmp_path / "again", [2, 5])
    text = refused(capsys, place / "model.remix", again, "--out", tmp_path / "out.remix", *QUICK)
    assert "the model knows digit 2 already: extend (--extend)" in text
    assert not list(tmp_path.glob("*.remix"))
    learn(place / "model.remix", again, "--extend", "--name", "more twos", "--out", tmp_path / "out.remix", *QUICK)
    step = remix.load(tmp_path / "out.remix").history[-1]
    assert (step.extended, step.name) == (("digit 2",), "more twos")


def test_files_that_cannot_be_used_are_listed_at_the_end(place, capsys, tmp_path):
    photos = folder(tmp_path / "photos", [5, 6])
    (photos / "digit 5" / "empty.png").write_bytes(b"")
    (photos / "digit 5" / "text.jpg").write_text("not an image")
    (photos / "digit 6" / "half.png").write_bytes((photos / "digit 6" / "010.png").read_bytes()[:40])
    (photos / "digit 6" / "README").write_text("these are sixes")
    os.mkfifo(photos / "digit 6" / "pipe.jpg")
    learn(place / "model.remix", photos, "--out", tmp_path / "out.remix", *QUICK)
    shown = " ".join(capsys.readouterr().out.split())
    assert "5 were left out" in shown
    learner = remix.load(place / "model.remix", epochs=1, samples=2)
    learner.learn(photos)
    assert {one.path.name for one in learner.skipped} == {"empty.png", "text.jpg", "half.png", "README", "pipe.jpg"}
    for line in ("empty.png: the file is empty", "pipe.jpg: a pipe", "3 files: not an image", "text.jpg", "README"):
        assert line in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{model}", "--out", "{new}"], "name the folder of new images too"),
        (["{first}", "{more}", "--out", "{new}"], "is a folder: the model comes first"),
        (["{model}", "{more}", "--out", "{model}", "--overwrite"], "is the model itself, which is never changed"),
        (["{more}", "--out", "{model}"], "exists already: choose another name, or add --overwrite"),
        (["{more}", "--out", "{root}"], "is a folder; name a file in it"),
        (["{more}", "--out", "{root}/no/such/m.remix"], "there is no folder"),
        (["{root}/nowhere", "--out", "{new}"], "no folder"),
        (["{model}", "{root}/nowhere", "--out", "{new}"], "no folder"),
        (["{root}/none.remix", "{more}", "--out", "{new}"], "none.remix"),
        (["{model}", "{more}", "--backbone", "resnet32", "--out", "{new}"], "--backbone is for the first step"),
        (["{model}", "{more}", "--freeze", "2", "--out", "{new}"], "chosen in the first step"),
        (["{model}", "{more}", "--method", "abd", "--out", "{new}"], "method 'abd' cannot be used here"),
        (["{more}", "--weights", "{model}", "--out", "{new}"], "give --backbone"),
        (["{more}", "--backbone", "resnet33", "--out", "{new}"], "no backbone is called 'resnet33'"),
        (["{model}", "{more}", "--epochs", "0", "--out", "{new}"], "epochs must be at least 1"),
        (["{one}", "--out", "{new}"], "only one class, digit 0"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence_before_any_work(place, capsys, tmp_path, words, sentence):
    names = {
        "model": place / "model.remix", "first": place / "first", "more": place / "more", "root": place,
        "new": tmp_path / "new.remix", "one": folder(tmp_path / "one", [0]),
    }  # fmt: skip
    assert sentence in refused(capsys, *(word.format(**names) for word in words))
    assert not (tmp_path / "new.remix").exists()


@pytest.mark.parametrize(
    "phase",
    [
        "remix.deploy.learner.take_in",
        "remix.learning.trainer.Monitor.begin_task",
        "remix.deploy.learning_monitor.LearningMonitor.inversion",
        "remix.deploy.learning_monitor.LearningMonitor.batch",
        "remix.methods.pmi.Pmi.remember",
        "remix.statistics.storage.written_whole",
    ],
)
def test_ctrl_c_in_any_phase_writes_nothing(place, capsys, tmp_path, monkeypatch, phase):
    if phase.endswith("begin_task"):
        phase = "remix.deploy.learning_monitor.LearningMonitor.begin_task"

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(phase, interrupted)
    words = [place / "model.remix", place / "more", "--out", tmp_path / "new.remix", *QUICK]
    assert refused(capsys, *words, status=130).endswith("interrupted, nothing was written")
    assert not list(tmp_path.iterdir())


def test_no_space_left_is_one_sentence_and_leaves_the_old_file(place, capsys, tmp_path, monkeypatch):
    out = tmp_path / "old.remix"
    out.write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    words = [place / "more", "--out", out, "--overwrite", *FIRST]
    with pytest.raises(SystemExit) as ended:
        learn(*words)
    assert ended.value.code == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "could not be written: no space is left on its disk; nothing was changed" in said
    assert out.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["old.remix"]


def test_names_in_any_script_and_long_ones(place, tmp_path):
    photos = folder(tmp_path / "photos", [5, 6])
    (photos / "digit 5").rename(photos / "пять")
    (photos / "digit 6").rename(photos / ("s" + "i" * 190 + "x"))
    learn(place / "model.remix", photos, "--out", tmp_path / "out.remix", *QUICK)
    assert remix.load(tmp_path / "out.remix").classes[3:] == ("s" + "i" * 190 + "x", "пять")


def test_a_name_too_long_for_a_model_is_refused_before_training(place, capsys, tmp_path):
    photos = folder(tmp_path / "photos", [5, 6])
    (photos / "digit 6").rename(photos / ("x" * 220))
    text = refused(capsys, place / "model.remix", photos, "--out", tmp_path / "out.remix", *QUICK)
    assert "characters" in text


@pytest.mark.slow
def test_a_real_ctrl_c_ends_with_one_sentence_and_no_file(place, tmp_path):
    words = ["learn", place / "first", "--backbone", "convnet8", "--epochs", "5000", "--patience", "5000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "remix", *map(str, words), "--out", str(tmp_path / "m.remix")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    for line in process.stdout:
        if "learning, first task" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors.strip() == "remix learn: interrupted, nothing was written"
    assert not list(tmp_path.iterdir())


def test_an_exact_head_is_typed_like_any_method(place, capsys, tmp_path):
    model = tmp_path / "model.remix"
    learn(place / "first", "--method", "lda", "--covariance", "diagonal", "--out", model, *FIRST)
    learn(model, place / "more", "--out", tmp_path / "more.remix")
    shown = " ".join(capsys.readouterr().out.split())
    assert "note: lda uses features of convolutions." in shown
    assert "2 classes, 20 images to learn from, 0 held out; images are brought to 8 x 8 pixels" in shown
    assert "2 new │ images left out in turn" in shown
    few = folder(tmp_path / "few", [5], 1)
    text = refused(capsys, model, few, "--minimum", "2", "--out", tmp_path / "few.remix")
    assert "digit 5 has 1 image to learn from, and the least is 2 (minimum)" in text
    learn(model, few, "--out", tmp_path / "few.remix")
    main(["inspect", str(tmp_path / "few.remix")])
    told = capsys.readouterr().out
    assert "WARNING: the sums of digit 5 are the features of one image each" in told
    assert re.search(
        r"takes [\d,]+ bytes as diagonal; it would take [\d,]+ bytes as dense and [\d,]+ bytes as laplace", told
    )
    with pytest.raises(SystemExit):
        main(["audit", str(tmp_path / "few.remix"), "--train", str(place / "more")])
    assert "the sums of digit 5 are the features of one image each" in " ".join(capsys.readouterr().err.split())


def test_what_is_confused_is_said_at_the_end_and_kept(tmp_path, capsys):
    photos = folder(tmp_path / "photos", [3, 8], 20)
    mixed = folder(tmp_path / "mixed", [3], 20)
    for file in sorted((mixed / "digit 3").iterdir())[:10]:
        file.rename(photos / "digit 8" / f"again {file.name}")
    learn(photos, "--method", "ncm", "--out", tmp_path / "m.remix", *FIRST)
    again = remix.load(tmp_path / "m.remix")
    said = " ".join(capsys.readouterr().out.split())
    found = re.search(r"most often mistaken: digit 8 for digit 3 \((\d+) of (\d+)\)", said)
    assert found is not None
    assert 2 <= int(found[1]) <= int(found[2]) == 6  # held out
    assert any(found[0] in note for note in again.notes)


@pytest.mark.parametrize(("stages", "shares"), [([], [0.0, 0.425, 0.85]), (["network"], [0.95, 0.975, 1.0])])
def test_without_training_the_pass_over_the_images_is_most_of_the_progress(stages, shares):
    shown, titles = [], []

    class Watched(Display):
        def show(self, title, share, terms, last=False):
            shown.append(round(share, 3))
            titles.append(title)

    monitor = LearningMonitor(Watched(Console(quiet=True)), dreams=False)
    monitor.begin_task(0, ["a"], stages)
    monitor.begin_phase(2 + len(stages), "remember")
    monitor.batch(0, 1, 2)
    monitor.batch(0, 2, 2)
    assert shown == shares
    assert titles[1] == "sending the images through the network, 1 of 2"
    assert (titles[2] == "solving the head") == (not stages)


def test_joint_training_stands_beside_the_step(place, capsys, tmp_path):
    words = [place / "model.remix", place / "more", "--out", tmp_path / "m.remix", *QUICK]
    learn(*words, "--joint", place / "first", "--check", place / "first")
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"before ┃ now ┃ joint", shown)
    assert re.search(r"2 new │ held-out images │ │ [\d.]+ │ [\d.]+ │", shown)
    assert re.search(r"3 old │ --check images │ [\d.]+ │ [\d.]+ │ [\d.]+ │", shown)
    assert "trained on old and new images together" in shown
    assert remix.load(tmp_path / "m.remix").history[-1].method == "remix"
    assert "--joint is for a model" in refused(
        capsys, place / "first", "--joint", place / "first", "--out", tmp_path / "n.remix", *FIRST
    )


def test_names_that_are_nearly_known_are_asked_about(place, capsys, tmp_path, monkeypatch):
    photos = folder(tmp_path / "photos", [5, 6])
    (photos / "digit 5").rename(photos / "Digit 1")
    words = [place / "model.remix", photos, "--out", tmp_path / "m.remix", *QUICK]
    assert "'digit 1' and 'Digit 1' differ only in case or spaces" in refused(capsys, *words)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, status in (("", 2), ("y", None)):
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        if status:
            refused(capsys, *words)
        else:
            learn(*words)
    assert "Digit 1" in remix.load(tmp_path / "m.remix").classes


def test_a_warning_comes_before_the_work_and_is_kept(place, capsys):
    main(["inspect", str(place / "model.remix")])
    assert "step 1: the network begins untrained, with 8 images per class" in capsys.readouterr().out
