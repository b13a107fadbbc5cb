"""Runs on transformers from a folder: their presets, texts and files, and what is refused before anything is done."""

import json

import pytest
import torch
import yaml
from PIL import Image
from tiny_hf import save_clip

from remix.cli import main
from remix.experiments.config import read_preset, resolve
from remix.experiments.plan import check_run, load_tasks
from remix.learning.model_file import load_model
from remix.networks import open_text_tower
from remix.support.settings import SettingError

PRESETS = ["cub-vit-mini", "cifar100-vit-mini", "cifar100-clip-10", "cub200-clip-10"]
SHORT = {"epochs": 1, "lr": 0.001, "milestones": [], "weight_decay": 0, "optimiser": "adamw"}


@pytest.fixture
def preset(tmp_path):
    """A run of two tasks of two classes of photographs on a tiny CLIP, both towers with adapters."""
    open_text_tower.cache_clear()
    save_clip(tmp_path / "clip")
    generator = torch.Generator().manual_seed(0)
    for part in ("train", "test"):
        for name in ("001.Cat", "a_dog", "bird", "fish"):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for number in range(4):
                pixels = torch.randint(0, 256, (16, 16, 3), generator=generator, dtype=torch.uint8).numpy()
                Image.fromarray(pixels).save(tmp_path / "photos" / part / name / f"{number}.png")
    short = {"block": {"steps": 1}, "entry": {"steps": 2}, "refine": {"steps": 1}}
    inverted = {"setting": "clip", "first": SHORT, "network": SHORT, "samples_per_task": 4, "inversion": short}
    values = {
        "data": {"name": str(tmp_path / "photos"), "tasks": 2, "options": {"size": 16}},
        "network": {
            "backbone": f"hf:{tmp_path / 'clip'}",
            "options": {"input_shape": [3, 16, 16], "adapter": "moe"},
            "head": "text",
            "text": {"templates": ["a {}."]},
        },
        "batch_size": 8,
        "methods": {"remix": {**inverted, "selection": False}, "moe-adapter": {"training": SHORT}},
    }
    path = tmp_path / "clip.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("name", PRESETS)
def test_presets_of_transformers_have_the_published_settings(name):
    config = resolve(name, method="remix")
    assert config.settings.setting == "clip"
    assert config.settings.depth == 1
    assert config.network.head == "text"
    clip, paper = "clip" in name, name == "cub200-clip-10"  # small ones have the weights of CIFAR-100
    assert config.settings.inversion.prior.weight == (0.01 if paper else 0.0001)
    assert config.settings.inversion.statistics == (0.2 if paper else 0.002)
    assert config.settings.scales.head == (0.2 if paper else 0.002)
    assert config.data.order == ("D" if "cub" in name else "C")
    if clip:
        assert (config.settings.network.epochs, config.settings.samples_per_task) == ((10, 100) if paper else (3, 50))
        assert (config.batch_size, config.settings.network.warm_up) == (64, 30)
    assert read_preset(name)["network"] == read_preset(PRESETS[0] if not clip else PRESETS[2])["network"]


@pytest.mark.parametrize("method", ["finetune", "moe-adapter", "vpt", "coda-p", "pmi", "remix"])
def test_methods_of_small_presets_train_alike(method):
    settings = resolve("cub-vit-mini", method=method).settings
    stages = [stage.training for step in ("first", "later") for stage in settings.stages(step) if stage.training.epochs]
    assert len(set(stages)) == 1
    assert resolve("cifar100-vit-mini", method=method).settings == settings


def test_a_run_on_clip_is_learned_written_and_read_again(preset, tmp_path):
    out = tmp_path / "run"
    main(["run", str(preset), "--method", "remix", "--out", str(out)])
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary["matrix"]["correct"]) == 2
    model = load_model(out / "model.remix")
    assert model.classes == ("001.Cat", "a_dog", "bird", "fish")
    assert model.classifier.head.names == [("001.Cat", "a_dog"), ("bird", "fish")]
    assert len(model.classifier.head.adapters) == 2
    with torch.no_grad():
        assert model.classifier(torch.zeros(1, 3, 16, 16)).shape == (1, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["network.text.tower=/nowhere"], r"network\.text: there is no folder '/nowhere'"),
        (["network.text.templates=[a photo]"], r"network\.text: a template is a text with one \{\}"),
        (["network.text.templates=['a very long template indeed of a {}.']"], "shorten the name or the template"),
        (["network.options.input_shape=[3,20,20]"], "choose a multiple of 8"),
        (["network.options.adapter=moo"], "there is no adapter 'moo'"),
        (["network.backbone=convnet8", "network.options={}"], r"set network\.text\.tower to a transformers folder"),
        (["method=zs-clip", "network.head=linear"], r"set network\.head=text"),
    ],
)
def test_what_cannot_come_to_its_end_is_refused_before_it_begins(preset, words, message):
    def begin():
        config = resolve(str(preset), method="finetune", assignments=words)
        check_run(config, load_tasks(config.data, None))

    with pytest.raises(ValueError, match=message):
        begin()


def test_two_classes_with_one_text_are_refused_before_the_run(preset, tmp_path):
    for part in ("train", "test"):
        (tmp_path / "photos" / part / "bird").rename(tmp_path / "photos" / part / "A dog")
    config = resolve(str(preset), method="moe-adapter")
    with pytest.raises(ValueError, match="the classes 'A dog' and 'a_dog' have one text, 'a dog': rename one"):
        check_run(config, load_tasks(config.data, None))


def test_counts_of_images_limit_every_class(preset):
    config = resolve(str(preset), method="moe-adapter", assignments=["data.images=2", "data.test_images=1"])
    stream = load_tasks(config.data, None)
    assert (len(stream[0].train), len(stream.test(0))) == (4, 2)
    with pytest.raises(SettingError, match="images must be at least 1, or null for all"):
        resolve(str(preset), assignments=["data.images=0"])


def test_folders_are_sought_in_the_data_folder_that_the_command_names(preset, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    values = yaml.safe_load(preset.read_text())
    values["network"]["backbone"] = "hf:clip"
    preset.write_text(yaml.safe_dump(values))
    words = ["run", str(preset), "--method", "moe-adapter", "--dry-run"]
    with pytest.raises(SystemExit):
        main(words)
    assert "there is no folder 'clip'" in capsys.readouterr().err
    main([*words, "--data", str(tmp_path)])
    with pytest.raises(SystemExit):  # the next command does not know it
        main(words)
