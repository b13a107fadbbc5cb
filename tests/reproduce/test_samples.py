"""Dreamed photographs, from pictures to figure."""

import shutil

import pytest

from remix.cli import main
from remix.deploy.dream_files import load_dream
from remix.reproduce import samples as reproduce_samples


@pytest.mark.slow
def test_samples_from_pictures_to_figure(capsys, refusal, tmp_path, photographs, weights, monkeypatch):
    monkeypatch.setattr(reproduce_samples, "_SIZES", {"mini": (32, 1, 4)})
    monkeypatch.setattr(reproduce_samples, "_PRIORS", {"diagonal": ("none", "no correlations")})
    out = tmp_path / "out"
    words = ["reproduce", "samples", "--data", str(photographs), "--weights", str(weights), "--out", str(out)]
    words += ["--form", "nll", "--classes"]
    main([*words, "class3,class0"])
    shown = capsys.readouterr().out
    assert "2 images of class3, class0" in shown
    assert "what the network itself reads in them:" in shown
    assert "| diagonal | no correlations |" in shown
    assert f"written  {out}/samples.png, samples.csv, samples.md" in shown
    assert (out / "samples.png").read_bytes().startswith(b"\x89PNG")
    dream = load_dream(out / "diagonal.safetensors")
    assert dream.about["request"]["settings"]["prior"]["form"] == "nll"
    assert [dream.classes[label] for label in dream.labels] == ["class3", "class0"]
    main([*words, "class3,class0", "--resume"])  # nothing is dreamed again
    assert "2 images of" not in capsys.readouterr().out
    assert "is of other classes or another form" in refusal(*words, "class0,class3", "--resume")


def test_the_plan_names_what_is_measured_and_dreamed(capsys, tmp_path, photographs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    weights = tmp_path / "weights.safetensors"
    weights.write_text("not opened")
    words = ["reproduce", "samples", "--data", str(photographs), "--weights", str(weights), "--out", f"{tmp_path}/out"]
    main([*words, "--classes", "class1,class2", "--dry-run"])
    shown = capsys.readouterr().out
    assert "80 photographs of 4 classes" in shown
    assert shown.count("6 of class1, class2") == len(reproduce_samples._PRIORS)
    assert shown.count("form typical") == shown.count("200 steps at full size") == 3
    assert shown.count("to do") == 5
    main([*words, "--classes", "class1", "--scale", "paper", "--dry-run"])
    shown = capsys.readouterr().out
    assert shown.count("50 of class1") == shown.count("2000 steps at full size, form nll") == 3
    assert not (tmp_path / "out").exists()


def test_at_the_papers_scale_the_classes_are_the_papers(refusal, tmp_path, photographs):
    weights = tmp_path / "weights.safetensors"
    weights.write_text("not opened")
    for target, parts in (("samples", "train/NAME/"), ("likelihood", "train/NAME/ and val/NAME/")):
        words = ["reproduce", target, "--data", photographs, "--weights", weights, "--scale", "paper"]
        said = refusal(*words, "--out", tmp_path / "out")
        assert f"must have {parts} with photographs of n02113978 (dog), n04285008 (car), n01882714 (koala)" in said
        assert "n03457902 (greenhouse) (it lacks train/n02113978); other folders with --classes" in said
        for part in ("train", "val"):
            for name in ("n02113978", "n04285008", "n01882714", "n03457902"):
                shutil.copytree(photographs / part / "class0", photographs / part / name, dirs_exist_ok=True)
        main([*map(str, words), "--out", str(tmp_path / "out"), "--dry-run"])
        for part in ("train", "val"):
            shutil.rmtree(photographs / part / "n02113978")
    assert not (tmp_path / "out").exists()
