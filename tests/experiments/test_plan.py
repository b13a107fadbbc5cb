"""What a run is made of and will do, before it does anything."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny_runs import config_of, remix_run, tiny

from remix.cli import main
from remix.cli.run import run
from remix.data import MissingData, TaskStream
from remix.experiments import estimate
from remix.experiments.config import build_config, list_presets, read_preset, resolve
from remix.experiments.plan import check_run, create_network, load_tasks, plan_run
from remix.learning import load_model
from remix.methods import list_methods, method_class
from remix.networks import create_backbone
from remix.support.settings import SettingError


def go(typed: dict[str, Any], **options: Any) -> tuple[int, str]:
    """The status, and what was printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as text:
        patch.setenv("COLUMNS", "200")
        return remix_run(typed, **options), text.getvalue()


def test_network_and_data_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(SettingError, match="takes images"):
        go(tiny("finetune", tmp_path / "run", "network={backbone: resnet20, options: {width: 4}}"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["network.backbone=resnet20"], "takes images"),
        (["network.options.width=abc"], "holds a value of the wrong kind"),
        (["method=pmi", "settings.inversion.prior.kind=laplace"], "which the method 'pmi' does not measure"),
        (["method=abd", "settings.image_generator.prior.kind=dense"], "which the method 'abd' does not measure"),
        (["method=remix", "settings.inversion.prior.kind=laplace-dct"], "set settings.view=map too"),
        (
            ["method=remix", "settings.inversion.prior.kind=dense", "settings.view=map", "network.options.width=32"],
            "matrix of 2,048 x 2,048",
        ),
    ],
)
def test_what_cannot_come_to_its_end_is_said_before_it_begins(tmp_path, dry_run, changes, said):
    with pytest.raises(ValueError, match=said):
        run("digits", out=str(tmp_path / "run"), set=changes, dry_run=dry_run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_task_without_test_images_is_refused_before_it_begins(tmp_path, dry_run):
    for split, names in (("train", "abc"), ("val", "ab")):
        for name in names:
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(3):
                Image.new("L", (8, 8), number).save(folder / f"{number}.png")
    changes = [f"data.name={tmp_path / 'photos'}", "data.options={size: 8, channels: 1}", "data.tasks=3"]
    with pytest.raises(SettingError, match=r"task 3 \(c\) has no test images"):
        run("digits", out=str(tmp_path / "run"), set=changes, dry_run=dry_run)


def test_a_class_that_cannot_be_learned_or_saved_is_refused_before_it_begins():
    config = resolve("digits", method="finetune")
    digits = load_tasks(config.data, None).splits
    without = replace(digits, train=digits.train.select((digits.train.labels != 3).nonzero()[:, 0]))
    with pytest.raises(MissingData, match="the class 3 has no training images"):
        TaskStream(without, 5)
    names = ("zero/null", *digits.classes[1:])
    renamed = replace(digits, train=replace(digits.train, classes=names), test=replace(digits.test, classes=names))
    with pytest.raises(ValueError, match="'zero/null' has control characters or slashes"):
        check_run(config, TaskStream(renamed, 5))


def test_a_run_begins_with_weights_that_are_given(tmp_path):
    config = resolve("digits", method="finetune", seed=3)
    save_file(dict(create_network(config).state_dict()), tmp_path / "first.safetensors")
    given = resolve("digits", method="finetune", assignments=[f"network.weights={tmp_path}/first.safetensors"])
    for key, tensor in create_network(config).state_dict().items():
        assert torch.equal(create_network(given).state_dict()[key], tensor)
    with pytest.raises(SettingError, match=r"network\.weights: no weights file"):
        create_network(resolve("digits", assignments=["network.weights=nowhere.safetensors"]))
    with pytest.raises(SettingError, match=r"no head 'cosin' \(did you mean 'cosine'\?\); there are: linear, cosine"):
        resolve("digits", assignments=["network.head=cosin"])


def test_an_option_of_the_data_of_the_wrong_kind_is_refused(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "a" / "0.png")
    changes = [f"data.name={tmp_path / 'photos'}", "data.options={holdout: a}"]
    with pytest.raises(SettingError, match=r"data\.options holds a value of the wrong kind"):
        run("digits", set=changes, dry_run=True)


@pytest.mark.parametrize("preset", list_presets())
def test_every_preset_can_be_planned_for_every_method_without_its_data(preset, monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    folder = read_preset(preset)["network"]["backbone"].startswith("hf:")  # a network that was trained before
    for method in (name for name in list_methods() if folder or not method_class(name).transformers):
        config = build_config(read_preset(preset), assignments={"method": method})
        plan = plan_run(config, None if preset != "digits" else load_tasks(config.data, None))
        assert len(plan.tasks) == config.data.tasks
        exact, begun = method_class(method).exact or method == "zs-clip", [] if folder else plan.tasks[:1]
        trained = begun if exact else plan.tasks
        assert all(task.stages and task.work > 0 for task in trained)
        if method in ("pmi", "remix"):
            settings = config.settings
            assert [task.pseudo for task in plan.tasks[1:]] == [
                settings.samples + index * settings.samples_per_task for index in range(1, config.data.tasks)
            ]
    if not folder:
        assert f"{plan.work:,}" in go({"preset": preset, "method": method}, dry_run=True)[1]


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    main(["run", "cifar100-10", "--method", "pmi", "--dry-run", "--set", "data.tasks=20"])
    shown = capsys.readouterr().out
    assert "this is planned with the official numbers of cifar100: where is cifar100?" in " ".join(shown.split())
    assert not list(tmp_path.iterdir())


def test_the_upper_bound_sees_all_classes_so_far():
    config = build_config(read_preset("cifar100-10"), assignments={"method": "joint"})
    assert [task.train for task in plan_run(config, None).tasks] == [5000 * number for number in range(1, 11)]


def test_data_that_are_not_all_there_are_noted(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for name in ("train.bin", "test.bin"):
        records = [bytes([0, label]) + bytes(3072) for label in range(100)]
        (folder / name).write_bytes(b"".join(records))
    _, text = go({"preset": "cifar100-mini", "method": "finetune"}, data=str(tmp_path), dry_run=True)
    assert "cifar100 has 100 training and 100 test images here, officially 50,000 and 10,000" in text
    assert "note:" not in go(tiny("finetune", tmp_path / "run"))[1]


def test_a_part_of_the_training_images_can_stand_in_for_the_test_images():
    config = resolve("digits", validation=True)
    stream = load_tasks(config.data, None)
    whole = load_tasks(resolve("digits").data, None)
    assert len(stream[0].train) + len(stream[0].test) == len(whole[0].train)


def test_validation_images_follow_a_seed_of_their_own():
    def held(*assignments, seed=0):
        config = resolve("digits", seed=seed, assignments=assignments, validation=True)
        return load_tasks(config.data, None).test(0).images, config.data.tested_on

    images, told = held()
    other_run, other_part = held(seed=1), held("data.validation_seed=1")
    assert torch.equal(images, other_run[0])
    assert told == other_run[1] == "10% of the training images"
    assert not torch.equal(images, other_part[0])
    assert other_part[1] == "10% of the training images (validation_seed 1)"


def test_an_exact_head_leaves_a_network_with_weights_as_it_is(tmp_path):
    plan = plan_run(resolve("cifar100-5", method="lda"), None)
    assert [len(task.stages) for task in plan.tasks] == [1, 0, 0, 0, 0]
    backbone = create_backbone("convnet8", width=4)
    save_file(backbone.state_dict(), tmp_path / "w.safetensors")
    typed = tiny("lda", tmp_path / "run", f"network.weights={tmp_path / 'w.safetensors'}")
    assert plan_run(config_of(typed), load_tasks(config_of(typed).data, None)).work == 0
    assert remix_run(typed) == 0
    found = load_model(tmp_path / "run" / "model.remix")
    trained = found.classifier.backbone.state_dict()
    assert all(torch.equal(tensor, trained[key]) for key, tensor in backbone.state_dict().items())
    assert found.memory.get("sums").method == "lda"
