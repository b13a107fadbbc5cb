"""`remix audit` from a model and folders to a table, a figure and a conclusion."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from remix.cli import main
from remix.data import load

STORED = Path(__file__).parent.parent / "learning" / "files" / "model-v2.remix"
NAMES = ("zero", "one", "two", "drei ³")


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """train/CLASS and test/CLASS with 30 and 10 digits of four classes."""
    root = tmp_path_factory.mktemp("images")
    splits = load("digits")
    for part, data, count in (("train", splits.train, 30), ("test", splits.test, 10)):
        for label, name in enumerate(NAMES):
            (root / part / name).mkdir(parents=True)
            for row in (data.labels == label).nonzero()[:count, 0].tolist():
                Image.fromarray(data.images[row, 0].numpy()).save(root / part / name / f"{row}.png")
    return root


def test_table_figure_and_conclusion_come_from_the_model(images, tmp_path, capsys):
    words = ["audit", str(STORED), "--train", str(images), "--count", "3", "--steps", "4", "--strategy", "pixels"]
    main([*words, "--out", str(tmp_path / "audit.png")])
    out, err = capsys.readouterr()
    assert "12 dreams" in err
    assert "pixels, contrast removed" in out
    assert "of 12" in out
    told = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert told["counts"] == {"dreams": 12, "training images": 120, "held-out images": 40}
    assert told["conclusion"] in out
    assert 0.3 < told["surer_of_training_images"] < 0.8
    assert "Without any dream: the network is surer of the class of a training image" in out
    assert Image.open(tmp_path / "audit.png").size[0] > 300
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "audit.png")])
    assert "is there already" in capsys.readouterr().err


def test_half_made_dreams_are_not_audited(images, tmp_path, capsys, monkeypatch):
    def interrupted(self, *args, **more):
        raise KeyboardInterrupt

    words = ["audit", str(STORED), "--train", str(images), "--count", "3", "--steps", "4", "--strategy", "pixels"]
    monkeypatch.setattr("remix.support.display.Display.show", interrupted)
    with pytest.raises(SystemExit) as stop:
        main([*words, "--out", str(tmp_path / "audit.png")])
    assert stop.value.code == 130
    assert not list(tmp_path.iterdir())


def test_saved_dreams_are_audited_without_held_out_images(images, tmp_path, capsys):
    dream = ["dream", str(STORED), "--classes", "one,two", "--count", "2", "--steps", "3", "--strategy", "pixels"]
    main([*dream, "--out", str(tmp_path / "d.png")])
    capsys.readouterr()
    shutil.copytree(images / "train", tmp_path / "train")
    main(["audit", str(STORED), "--train", str(tmp_path / "train"), "--dreams", str(tmp_path / "d.safetensors")])
    out, err = capsys.readouterr()
    assert "no held-out images: training images are compared with each other instead" in err
    assert "other training images" in out
    main(
        ["audit", str(STORED), "--train", str(tmp_path / "train"), "--held-out", str(images / "test"),
         "--dreams", str(tmp_path / "d.safetensors")]
    )  # fmt: skip
    assert "held-out images" in capsys.readouterr().out


def test_what_a_person_can_set_right_is_said(images, tmp_path, capsys):
    def refusal(*words) -> str:
        with pytest.raises(SystemExit):
            main(["audit", str(STORED), *map(str, words)])
        return capsys.readouterr().err

    assert "there is no folder" in refusal("--train", tmp_path / "nowhere")
    assert "must end in .png" in refusal("--train", images, "--out", tmp_path / "a.pdf")
    assert "no class 'seven'" in refusal("--train", images, "--classes", "seven")
    assert "no file" in refusal("--train", images, "--dreams", tmp_path / "none.safetensors")
