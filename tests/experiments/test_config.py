"""Configurations: presets, what is typed over them, and what is said about mistakes."""

from dataclasses import replace

import pytest

from remix.data import Augment
from remix.experiments.config import (
    build_config,
    differences,
    list_presets,
    parse_assignments,
    read_preset,
)
from remix.learning.stage import Training
from remix.methods import list_methods, method_class
from remix.support.settings import SettingError


@pytest.mark.parametrize("method", list_methods())
@pytest.mark.parametrize("preset", list_presets())
def test_every_preset_has_settings_for_every_method(preset, method):
    config = build_config(read_preset(preset), assignments={"method": method})
    assert config.method == config.settings.name == method
    assert build_config(config.to_plain()) == config


def of_remix(preset: str, **typed):
    return build_config(read_preset(preset), assignments={"method": "remix", **typed})


def test_a_run_that_names_no_method_has_the_one_that_did_best():
    assert {build_config(read_preset(name)).method for name in ("digits", "cifar100-mini", "cub-vit-mini")} == {"lda"}
    assert build_config(read_preset("cifar100-mini-improved")).method == "remix"  # it is about its settings


@pytest.mark.parametrize(
    ("preset", "rate", "head", "samples", "per_task", "weight", "batch"),
    [
        ("cifar100-5", 0.005, 1.5, 6000, 5000, 0.05, 4000),
        ("cifar100-10", 0.01, 1.5, 3000, 2000, 0.5, 4000),
        ("cifar100-20", 0.01, 1.0, 2000, 1000, 0.5, 4000),
        ("tiny-5", 0.005, 1.5, 6000, 5000, 0.1, 1000),
        ("tiny-10", 0.005, 1.5, 3000, 2000, 0.25, 1000),
        ("tiny-20", 0.005, 1.0, 2000, 1000, 0.05, 1000),
    ],
)
def test_the_settings_of_the_code(preset, rate, head, samples, per_task, weight, batch):
    code = {"settings.setting": "code"}
    config = of_remix(preset, **code)
    found = config.settings
    assert (found.network.lr, found.network.epochs, found.network.milestones) == (rate, 120, (60, 90))
    assert (found.first.epochs, found.first.lr, found.first.milestones) == (200, 0.1, (80, 120))
    assert (found.head.epochs, found.last_block.epochs, found.balance.epochs, found.balance.lr) == (20, 20, 40, 0.005)
    assert (found.scales.head, found.samples, found.samples_per_task) == (head, samples, per_task)
    assert (found.inversion.prior.kind, found.inversion.prior.weight) == ("laplace-code", weight)
    assert (found.inversion.batch, found.inversion.block.steps, found.inversion.refine.steps) == (batch, 50, 160)
    assert (config.batch_size, config.augment) == (128, Augment(4, True))
    assert config.data.tasks == int(preset.rpartition("-")[2])
    pmi = build_config(read_preset(preset), assignments={"method": "pmi", **code}).settings
    assert (pmi.network, pmi.scales, pmi.samples) == (found.network, found.scales, found.samples)
    assert pmi.inversion.prior.kind == "none"
    paper = of_remix(preset).settings
    assert (paper.setting, paper.samples, paper.inversion.prior.weight) == ("paper", samples, weight)
    assert (paper.head.epochs, paper.network.epochs, paper.network.lr, paper.scales.head) == (0, 160, 0.1, 0.0)


def test_the_mini_benchmark_is_what_was_fixed():
    config = of_remix("cifar100-mini")
    data, found = config.data, config.settings
    assert (data.name, data.order, data.classes, data.tasks, data.first) == ("cifar100", "A", 20, 5, None)
    assert (config.network.backbone, config.network.options, config.batch_size) == ("resnet32", {"width": 8}, 128)
    stages = [(s.epochs, s.lr, s.milestones) for s in (found.head, found.last_block, found.network, found.balance)]
    assert stages == [(2, 0.1, ()), (2, 0.05, ()), (12, 0.01, (6, 9)), (4, 0.005, ())]
    assert (found.first.epochs, found.first.lr, found.first.milestones) == (20, 0.1, (8, 12))
    assert (found.samples, found.samples_per_task, found.selectors.epochs) == (400, 200, 50)
    refine = found.inversion.refine
    assert (found.inversion.block.steps, refine.steps, refine.warm_up, refine.milestones) == (20, 30, 5, (15, 22))
    assert (found.inversion.block.rate, refine.rate, found.inversion.prior.weight) == (0.8, 0.4, 0.5)


@pytest.mark.parametrize("method", list_methods())
def test_the_mini_benchmark_of_tiny_imagenet_differs_in_its_images_only(method):
    same = {"method": method, **({"settings.setting": "code"} if method in ("pmi", "remix") else {})}
    cifar, found = (build_config(read_preset(name), assignments=same) for name in ("cifar100-mini", "tiny-mini"))
    assert (found.settings, found.augment, found.batch_size) == (cifar.settings, cifar.augment, cifar.batch_size)
    assert found.data == replace(cifar.data, name="tiny-imagenet", order="B")
    assert found.network.options == {"width": 8, "stem_stride": 2, "input_shape": [3, 64, 64]}


ON_RESNETS = [name for name in list_methods() if not method_class(name).exact and not method_class(name).transformers]


@pytest.mark.parametrize("method", ON_RESNETS)
def test_every_method_trains_twenty_epochs_per_task_on_the_mini_benchmark(method):
    found = build_config(read_preset("cifar100-mini"), assignments={"method": method}).settings
    first = getattr(found, "first", getattr(found, "training", None))
    later = [getattr(found, name, None) for name in ("later", "head", "last_block", "network", "balance", "training")]
    assert first.epochs == 20
    assert sum(stage.epochs for stage in later if isinstance(stage, Training)) == 20


def test_what_is_typed_goes_before_the_preset():
    typed = parse_assignments(["data.tasks=2", "settings.first.lr=1e-3", "augment={flip: false}", "seed=7"])
    config = build_config(read_preset("digits"), assignments=typed)
    assert (config.data.tasks, config.settings.first.lr, config.augment.flip, config.seed) == (2, 1e-3, False, 7)
    assert config.settings.first.epochs == build_config(read_preset("digits")).settings.first.epochs


def test_a_precision_may_be_typed_as_a_number():
    assert build_config(read_preset("digits"), assignments=parse_assignments(["precision=32"])).precision == "32"


def test_settings_of_one_method_are_not_taken_for_those_of_another():
    saved = of_remix("digits").to_plain()
    with pytest.raises(SettingError, match=r"of method 'remix' and mean nothing to 'finetune'"):
        build_config(saved, assignments={"method": "finetune"})


def test_a_generator_needs_a_batch():
    with pytest.raises(SettingError, match="batches of 2 images or more"):
        build_config(read_preset("digits"), assignments={"method": "rdfcil", "settings.image_generator.batch": 0})


def test_one_option_leaves_the_others_of_the_preset():
    typed = parse_assignments(["network.options.final_relu=true", "network.options.padding=symmetric"])
    config = build_config(read_preset("cifar100-mini"), assignments=typed)
    assert config.network.options == {"width": 8, "final_relu": True, "padding": "symmetric"}
    assert build_config(config.to_plain()) == config


@pytest.mark.parametrize("options", [{}, {"network.options.width": 4}])
def test_another_backbone_begins_without_the_options_of_the_preset(options):
    config = build_config(read_preset("tiny-5"), assignments={"network.backbone": "convnet8", **options})
    assert config.network.options == ({"width": 4} if options else {})


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("data.taks=3", "did you mean 'tasks'"),
        ("settings.frist.epochs=2", "did you mean 'first'"),
        ("network.lr=1", "did you mean 'settings.network.lr'"),
        ("network.options={widht: 2}", "did you mean 'width'"),
        ("method=remx", "did you mean 'remix'"),
        ("network.backbone=resnet23", "did you mean"),
        ("seed=one", "seed must be a whole number, got 'one'"),
        ("seed=-1", "seed must be from 0"),
        ("seed=true", "seed must be a whole number"),
        ("settings.first.milestones=3", "must be a list"),
        ("settings.first.lr=-1", "not negative"),
        ("settings.selection=3", "settings.selection must be true or false"),
        ("settings.inversion.prior.kind=foo", "there are: none, diagonal, laplace"),
        ("settings.first=3", "settings.first must be a mapping"),
        ("data.validation=1.5", "validation must be a fraction"),
        ("data.validation_seed=-1", "validation_seed must be from 0"),
        ("data.name=", "data.name must be a word"),
        ("accelerator=tpu", "accelerator must be one of auto, cpu, cuda, mps"),
        ("precision=16", "precision must be one of 32, bf16-mixed, got 16"),
        ("data.tasks=.inf", "data.tasks must be a whole number"),
        ("settings.samples=-50", "samples and samples_per_task must not be negative"),
        ("settings.inversion.batch=0", "batch and micro_batch must be at least 1"),
        ("tasks", "--set takes key=value"),
        ("a=[1", "is not a value"),
    ],
)
def test_a_mistake_is_one_sentence(typed, said):
    with pytest.raises(SettingError) as caught:
        of_remix("digits", **parse_assignments([typed]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_of_another_method_than_the_default_are_told_what_is_missing():
    with pytest.raises(SettingError, match=r"no setting 'samples'.*; no method was named, so it is lda"):
        build_config(read_preset("digits"), assignments={"settings.samples": 7})


def test_files_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("data: {name: digits, tasks: 2}\nmethod: finetune\nmethods: {finetune: {first: {epochs: 1}}}\n")
    config = build_config(read_preset(str(file)))
    assert (config.method, config.settings.first.epochs, config.settings.later.epochs) == ("finetune", 1, 200)
    file.write_text("data: [")
    with pytest.raises(SettingError, match="not YAML in line"):
        read_preset(str(file))
    file.write_text("- 1")
    with pytest.raises(SettingError, match="key: value"):
        read_preset(str(file))
    with pytest.raises(SettingError, match="No such file"):
        read_preset(str(tmp_path / "other.yaml"))
    with pytest.raises(SettingError, match="did you mean 'digits'"):
        read_preset("digit")
    with pytest.raises(SettingError, match="did you mean 'remix'"):
        build_config({"methods": {"remx": {}}})


def test_differences_name_every_path():
    one, other = build_config(read_preset("digits")), build_config(read_preset("digits"), assignments={"data.tasks": 2})
    assert differences(one.to_plain(), other.to_plain()) == ["data.tasks: 5, now 2"]
    assert differences(one.to_plain(), one.to_plain()) == []


def test_a_preset_may_say_only_what_differs_from_another(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: digits\nabout: mine\ndata: {tasks: 2}\nmethods: {remix: {samples: 7}}\n")
    mine, digits = of_remix(str(file)), of_remix("digits")
    assert mine.data == replace(digits.data, tasks=2)
    assert mine.settings == replace(digits.settings, samples=7)
    chain = tmp_path / "chain.yaml"
    chain.write_text(f"base: {file}\n")
    with pytest.raises(SettingError, match="base"):
        read_preset(str(chain))


def test_settings_by_the_names_of_earlier_versions_are_read():
    """Runs made before a setting was renamed are compared, reported and gone on with."""
    old = build_config({**read_preset("digits"), "method": "remix", "settings": {"views": True}})
    assert old.settings.augment_replay
    assert old == of_remix("digits", **{"settings.augment_replay": True})
    generated = build_config(read_preset("digits"), assignments={"method": "rdfcil", "settings.generator.batch": 7})
    assert generated.settings.image_generator.batch == 7
    assert "generator" not in generated.to_plain()["settings"]
