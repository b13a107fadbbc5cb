"""Dreamed photographs, from pictures to figure."""

import shutil

import pytest
from made_targets import rows_of
from tiny_hf import make, save

from remix.cli import main
from remix.deploy.dream_files import load_dream
from remix.deploy.inspection import inspect_file
from remix.learning import load_model
from remix.reproduce import samples as reproduce_samples


@pytest.mark.slow
def test_samples_from_pictures_to_figure(capsys, refusal, tmp_path, photographs, weights, monkeypatch):
    monkeypatch.setattr(reproduce_samples, "_SIZES", {"mini": (32, 1, 4)})
    monkeypatch.setattr(reproduce_samples, "_PRIORS", {"laplace-paper": "the paper's"})
    out = tmp_path / "out"
    words = ["reproduce", "samples", "--data", str(photographs), "--weights", str(weights), "--out", str(out)]
    words += ["--classes", "class3,class0"]
    main(words)
    shown = capsys.readouterr().out
    assert shown.count("20 images of 1 classes at 32 pixels") == 2
    assert "1 images of class3" in shown
    assert shown.count("reads in them:") == 2
    assert "| laplace-paper | the paper's |" in shown
    assert f"written  {out}/samples.png, samples.csv, samples.md" in shown
    assert (out / "samples.png").read_bytes().startswith(b"\x89PNG")
    for name in ("class3", "class0"):
        dream = load_dream(out / f"{name}-laplace-paper.safetensors")
        assert dream.about["request"]["settings"]["prior"] == {
            "kind": "laplace-paper",
            "summed": False,
            "form": "nll",
            "weight": 4 * 5,
        }
        assert [dream.classes[label] for label in dream.labels] == [name]
        maps = [layer for layer in load_model(out / f"{name}.remix").memory.layers.values() if layer.view.per_image]
        assert [(layer.point.module, layer.images) for layer in maps] == [
            ("layer1.2", 20), ("layer2.3", 20), ("layer3.5", 20), ("layer4.2", 20),
        ]  # fmt: skip
        assert all(set(layer.covariances) == {"laplace", "laplace-paper"} for layer in maps)
    assert "Laplace covariance" in {total.kind for total in inspect_file(out / "class0.remix").totals()}
    main([*words, "--resume"])  # nothing is dreamed again
    assert "reads in them" not in capsys.readouterr().out
    assert "another scale or another form of the prior" in refusal(*words, "--form", "typical", "--resume")


@pytest.mark.slow
def test_samples_of_a_transformer_differ_in_the_prior_alone_and_are_judged(
    capsys, refusal, tmp_path, photographs, weights, monkeypatch
):
    pytest.importorskip("transformers")
    model = make("vit")
    model.config.id2label = {number: f"class{number}" for number in range(4)}
    save(model, tmp_path / "vit")
    monkeypatch.setattr(reproduce_samples, "_VIT_SIZES", {"mini": (32, 2, 6)})
    out = tmp_path / "out"
    words = ["reproduce", "samples", "--data", str(photographs), "--vit", str(tmp_path / "vit"), "--out", str(out)]
    words += ["--weights", str(weights), "--classes", "class3"]
    main(words)
    requests = [
        load_dream(out / f"class3-{prior}.safetensors").about["request"]["settings"] for prior in ("none", "laplace")
    ]
    assert [one.pop("prior")["kind"] for one in requests] == ["none", "laplace"]
    assert requests[0] == requests[1]
    assert (requests[0]["augmentation"]["jitter"], requests[0]["variation"]) == (0, 0.1)
    assert (requests[0]["statistics"], requests[0]["statistics_form"]) == (10.0, "kl")
    assert requests[0]["augmentation"]["rotation"] == 10
    assert [scale["steps"] for scale in requests[0]["scales"]] == [4, 6]  # 2,000 and 3,000
    layers = load_model(out / "class3.remix").memory.layers.values()
    assert {layer.view.name for layer in layers if layer.view.axis == 2} == {"token-channels"}
    kept = [layer.point.module for layer in layers if layer.covariances]
    assert kept == ["pre", "layers.0", "layers.1", "layers.2"]  # quarters of four blocks of tokens
    rows = rows_of(out / "samples.csv")
    assert [(row["prior"], row["images"]) for row in rows] == [("none", "2"), ("laplace", "2")]
    assert all(0 <= int(row["read as it by another network"]) <= 2 for row in rows)
    assert "by another network" in capsys.readouterr().out
    (photographs / "train" / "class3").rename(photographs / "train" / "class9")
    assert "the transformer has no class 'class9'" in refusal(*words[:-1], "class9", "--resume")


def test_the_plan_names_what_is_measured_and_dreamed(capsys, tmp_path, photographs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    weights = tmp_path / "weights.safetensors"
    weights.write_text("not opened")
    words = ["reproduce", "samples", "--data", str(photographs), "--weights", str(weights), "--out", f"{tmp_path}/out"]
    main([*words, "--classes", "class1,class2", "--dry-run"])
    shown = capsys.readouterr().out
    assert "photos has train/NAME/ with photographs of class1, class2; each class is measured" in shown
    assert "20 + 20 photographs" in shown
    assert "200 steps; no prior: the paper's baseline " in shown
    assert shown.count("5 x sum over 4 maps of nll") == 2
    assert shown.count("to do") == 4
    main([*words, "--classes", "class1", "--scale", "paper", "--form", "typical", "--dry-run"])
    shown = capsys.readouterr().out
    assert shown.count("50 of each class") == shown.count("2000 steps") == 3
    assert shown.count("5 x sum over 4 maps of typical") == 2
    assert not (tmp_path / "out").exists()


def test_at_the_papers_scale_the_classes_are_the_papers(capsys, refusal, tmp_path, photographs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
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
        assert f"photos has {parts} with photographs of n02113978 (dog)," in capsys.readouterr().out
        for part in ("train", "val"):
            shutil.rmtree(photographs / part / "n02113978")
    assert not (tmp_path / "out").exists()
