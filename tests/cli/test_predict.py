"""`remix predict`: the right classes for good images, and no crash for any other file."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    """Those of pytest's own terminal reach its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_table_of_files_and_folders(remix, model_file, digits):
    status, out, err = remix("predict", model_file, digits / "one" / "3.png", digits, "--top", "2")
    lines = out.splitlines()
    assert status == 0
    assert err == ""
    assert lines[0].split() == ["image", "class", "2."]
    assert len(lines) == 1 + 1 + 40
    assert lines[1].split()[:2] == [str(digits / "one" / "3.png"), "one"]
    assert sum("drei ³/" in line and "  drei ³ " in line for line in lines) >= 9


def test_a_terminal_has_as_many_classes_as_fit_in_a_line(remix, model_file, digits, monkeypatch):
    picture = digits / "one" / "3.png"
    _, whole, err = remix("predict", model_file, picture, "--top", "4")
    assert (whole.splitlines()[0].split(), err) == (["image", "class", "2.", "3.", "4."], "")
    width = len(whole.splitlines()[1])
    monkeypatch.setenv("COLUMNS", str(width))
    assert remix("predict", model_file, picture, "--top", "4")[1] == whole
    monkeypatch.setenv("COLUMNS", str(width - 1))
    _, out, err = remix("predict", model_file, picture, "--top", "4")
    assert out.splitlines()[0].split() == ["image", "class", "2.", "3."]
    assert all(len(line) < width for line in out.splitlines())
    assert "3 of the 4 most probable classes fit in a line" in err


def test_a_name_is_no_formula_in_csv(remix, model_file, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(digits / "one" / "3.png", tmp_path / "=cmd|x.png")
    _, out, _ = remix("predict", model_file, "=cmd|x.png", "--format", "csv", "--top", "1")
    assert next(csv.DictReader(io.StringIO(out)))["image"] == "'=cmd|x.png"


def test_batches_continue_one_table(remix, model_file, digits):
    _, whole, _ = remix("predict", model_file, digits)
    _, parts, _ = remix("predict", model_file, digits, "--batch", "7")
    assert [line.split()[:3] for line in parts.splitlines()] == [line.split()[:3] for line in whole.splitlines()]


def test_json_and_csv_hold_every_image(remix, model_file, digits):
    status, out, _ = remix("predict", model_file, digits, "--format", "json", "--top", "3")
    content = json.loads(out)
    assert status == 0
    assert content["skipped"] == []
    assert len(content["images"]) == 40
    first = content["images"][0]
    assert first["predictions"][0]["class"] == "drei ³"
    assert len(first["predictions"]) == 3
    status, out, err = remix("predict", model_file, digits, "--format", "csv", "--top", "0")
    assert (status, out) == (2, ""), "nothing is printed before it is refused"
    assert "at least 1" in err
    _, out, _ = remix("predict", model_file, digits, "--format", "csv", "--top", "3", "--batch", "16")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 120
    assert rows[0]["image"] == first["image"]
    assert float(rows[0]["probability"]) == pytest.approx(first["predictions"][0]["probability"], abs=2e-6)
    assert [row["rank"] for row in rows[:4]] == ["1", "2", "3", "1"]


def test_more_classes_than_there_are(remix, model_file, digits):
    status, out, _ = remix("predict", model_file, digits / "one", "--top", "50", "--format", "json")
    assert status == 0
    assert {len(image["predictions"]) for image in json.loads(out)["images"]} == {4}


@pytest.fixture
def odd(tmp_path):
    """Files that people really have."""
    folder = tmp_path / "odd"
    (folder / "deep" / "er").mkdir(parents=True)
    photo = Image.fromarray((np.random.default_rng(0).random((40, 30, 3)) * 255).astype(np.uint8))
    photo.save(folder / "good.jpg")
    photo.save(folder / "deep" / "er" / "GOOD.JPEG")
    photo.convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray((np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)).save(folder / "sixteen.png")
    photo.save(folder / "animated.gif", save_all=True, append_images=[photo.rotate(90)] * 3)
    photo.resize((20000, 4)).save(folder / "wide.png")
    photo.convert("RGBA").save(folder / "transparent.png")
    photo.save(folder / f"{'ж' * 100}.png")
    photo.save(folder / "猫 [bold]x ü.png")
    photo.resize((1, 1)).save(folder / "bad-one-pixel.png")
    (folder / "bad-empty.jpg").write_bytes(b"")
    (folder / "bad-text.png").write_text("hello")
    whole = (folder / "good.jpg").read_bytes()
    (folder / "bad-cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "bad-corrupt.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (folder / "notes.txt").write_text("not an image and not called one")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


BAD = {
    "bad-one-pixel.png": "1 x 1 pixels are too few",
    "bad-empty.jpg": "the file is empty",
    "bad-text.png": "not an image",
    "bad-cut.jpg": "damaged",
    "bad-corrupt.png": "",
    "notes.txt": "not an image",
}


def test_odd_images_are_read_and_bad_ones_listed_at_the_end(remix, model_file, odd):
    status, out, err = remix("predict", model_file, odd, "--format", "json", "--top", "1")
    content = json.loads(out)
    assert status == 0
    assert err == ""
    names = {image["image"].rpartition("/")[2] for image in content["images"]}
    assert names == {
        "good.jpg", "GOOD.JPEG", "cmyk.jpg", "sixteen.png", "animated.gif", "wide.png", "transparent.png",
        f"{'ж' * 100}.png", "猫 [bold]x ü.png",
    }  # fmt: skip
    reasons = {one["image"].rpartition("/")[2]: one["reason"] for one in content["skipped"]}
    assert set(reasons) == set(BAD)
    assert all(BAD[name] in reason for name, reason in reasons.items())
    status, out, err = remix("predict", model_file, odd)
    assert status == 0
    assert len(out.splitlines()) == 10
    assert err.splitlines()[0] == "left out 6:"
    assert "3 files: not an image that can be read" in err
    assert all(name in err for name in BAD)


def test_only_bad_files_end_with_status_1(remix, model_file, odd, tmp_path):
    (tmp_path / "empty").mkdir()
    long = "x" * 5000 + ".png"
    status, out, err = remix("predict", model_file, odd / "bad-text.png", tmp_path / "empty", "nothing.jpg", long)
    assert (status, out) == (1, "")
    assert "nothing.jpg: no such file" in err
    assert "no image in this folder" in err
    assert "File name too long" in err
    assert "no image was read" in err


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything; the next test pretends")
def test_files_and_folders_without_permission(remix, model_file, odd):
    (odd / "good.jpg").chmod(0)
    (odd / "deep").chmod(0)
    try:
        status, _, err = remix("predict", model_file, odd)
    finally:
        (odd / "deep").chmod(0o700)
    assert status == 0
    assert "good.jpg: no permission to read it" in err
    assert "deep: cannot be listed: Permission denied" in err


def test_a_pretended_lack_of_permission(remix, model_file, odd, monkeypatch):
    opened = os.open

    def refuse(file, *options, **more):
        if str(file).endswith("good.jpg"):
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *options, **more)

    def walk(folder, onerror):
        onerror(PermissionError(13, "Permission denied", str(odd / "deep")))
        yield str(folder), [], ["good.jpg", "cmyk.jpg"]

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "walk", walk)
    status, out, err = remix("predict", model_file, odd)
    assert status == 0
    assert "cmyk.jpg" in out
    assert "good.jpg: no permission to read it" in err
    assert "deep: cannot be listed: Permission denied" in err


def test_names_on_standard_input_are_read(remix, model_file, digits, monkeypatch):
    names = f"{digits / 'one' / '0.png'}\n\n{digits / 'two' / '0.png'}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(names.encode())))
    status, out, _ = remix("predict", model_file, "-", "--top", "1")
    assert status == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["one", "two"]


def test_names_on_standard_input_need_not_be_text(remix, model_file, digits, monkeypatch, tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.png"
    try:
        os.link(digits / "one" / "0.png", name)
    except OSError:
        pytest.skip("this file system has only names that are text")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(name)))
    status, out, _ = remix("predict", model_file, "-")
    assert status == 0
    assert "\\xff.png  one " in out


def test_a_standard_input_without_names(remix, model_file, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    status, _, err = remix("predict", model_file, "-")
    assert status == 2
    assert "names on standard input, which is closed" in err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(100_000))))
    status, _, err = remix("predict", model_file, "-")
    assert status == 2
    assert "a line does not end" in err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_pipes_and_devices_do_not_keep_it_waiting(model_file, digits, tmp_path, command):
    folder = shutil.copytree(digits, tmp_path / "photos")
    os.mkfifo(folder / "one" / "pipe.jpg")
    (folder / "one" / "endless.bmp").symlink_to("/dev/zero")
    out, err = remix_process(command, model_file, folder).communicate(timeout=120)
    assert b"pipe.jpg: a pipe, not a file" in err
    assert b"endless.bmp: a device, not a file" in err
    assert b"two" in out


def test_what_a_person_can_set_right_is_said(remix, model_file, digits, tmp_path):
    assert "--format knows table, json, csv, got 'xml'" in remix("predict", model_file, digits, "--format", "xml")[2]
    assert "must be at least 1" in remix("predict", model_file, digits, "--top", "0")[2]
    status, _, err = remix("predict", digits / "one" / "0.png", digits)
    assert status == 2
    assert "is no model file" in err
    status, _, err = remix("predict", tmp_path / "no.remix", digits)
    assert status == 2
    assert "no file" in err


def remix_process(*words, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "remix", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.slow
def test_a_reader_that_has_had_enough(model_file, digits):
    process = remix_process("predict", model_file, digits, digits, "--batch", "1", "--format", "csv")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.slow
def test_a_terminal_that_knows_few_letters(model_file, digits):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    process = remix_process("predict", model_file, digits / "drei ³" / "0.png", env=environment)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert b"drei \\xb3" in out


@pytest.mark.slow
def test_ctrl_c_ends_with_one_sentence(model_file):
    """A pipe that nobody writes to keeps the command waiting."""
    process = remix_process("predict", model_file, "-", "--format", "csv", stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"image,rank,label,class,probability\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err == b"remix predict: interrupted, nothing was written\n"
    assert out == b""


@pytest.fixture(scope="module")
def careful(tmp_path_factory):
    """A model of an exact head that knows three digits, and a folder of these and of another."""
    from remix.cli import main
    from tests.deploy.small import folder

    root = tmp_path_factory.mktemp("careful")
    folder(root / "first", [0, 1, 2], 20)
    network = ("--backbone", "convnet8", "--options", "width=4", "--epochs", "6")
    main(["learn", str(root / "first"), "--method", "lda", "--out", str(root / "m.remix"), *network])
    return root / "m.remix", folder(root / "photos", [0, 1, 7], 20)


def test_unknown_images_are_named_in_every_format(remix, careful):
    model, photos = careful
    status, out, err = remix("predict", model, photos, "--top", "1", "--unknown")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["image", "class", "familiar"]
    unknown = [line for line in lines[1:] if "  unknown (digit " in line]
    assert 0 < len(unknown) < 60
    assert "unknown (" not in remix("predict", model, photos, "--top", "1")[1]
    found = json.loads(remix("predict", model, photos, "--unknown", "--format", "json")[1])["images"]
    assert sum(not image["known"] for image in found) == len(unknown)
    assert all((image["familiar"] >= 0.05) == image["known"] for image in found)
    assert found[0]["predictions"][0]["class"].startswith("digit ")
    for share, same in (("0.95", True), ("0.5", False)):
        text = remix("predict", model, photos, "--unknown", share, "--format", "csv", "--top", "1", "--batch", "7")[1]
        rows = list(csv.DictReader(io.StringIO(text)))
        assert len(rows) == 60
        assert set(rows[0]) == {"image", "rank", "label", "class", "probability", "known", "familiar"}
        assert (sum(row["known"] == "0" for row in rows) == len(unknown)) == same


def test_unknown_needs_a_share_and_a_model_that_can_tell(remix, model_file, careful, digits):
    status, out, err = remix("predict", model_file, digits, "--unknown")
    assert (status, out) == (2, "")
    assert "the model cannot tell images of no known class" in err
    status, out, err = remix("predict", careful[0], digits, "--unknown", "95")
    assert (status, out) == (2, "")
    assert "above 0 and below 1 such as 0.95, got 95.0" in err
    assert "must be a number, got 'photo.jpg'" in remix("predict", careful[0], "--unknown", "photo.jpg")[2]
