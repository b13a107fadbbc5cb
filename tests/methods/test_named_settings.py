"""The settings `paper`, `code` and `ours` of pmi and remix: what each is, and that it does what it says."""

from dataclasses import replace

import pytest
import torch

from remix.data import Augment
from remix.experiments.config import build_config, parse_assignments, read_preset
from remix.inversion import PriorSettings
from remix.learning.losses import LossScales
from remix.learning.stage import Batch, Training
from remix.methods import create_method, method_class
from remix.methods.distillation import balance_head_by_formula
from remix.statistics import SelectorRecipe
from remix.support.settings import SettingError, overlay, plain
from tests.methods.tiny import settings as tiny_settings
from tests.methods.tiny import tiny_engine, tiny_stream

SETTINGS = ("paper", "code", "ours")


def learned(name="pmi", tasks=2, **changes):
    """An engine after so many tiny tasks, with changed settings."""
    stream = tiny_stream()
    engine = tiny_engine(name, stream)
    engine.method = replace(engine.method, **changes)
    for number in range(tasks):
        engine.learn(stream[number])
    return engine


def in_second_task(**changes):
    """An engine whose second task has been dreamed and trained, but not remembered."""
    stream = tiny_stream()
    engine = tiny_engine("pmi", stream)
    engine.method = replace(engine.method, **changes)
    engine.learn(stream[0])
    engine.present = stream[1].train
    engine._prepare(stream[1])
    engine._dream()
    return engine


# --- names ---


@pytest.mark.parametrize("method", ["pmi", "remix"])
def test_the_defaults_are_those_of_the_code(method):
    assert create_method(method) == create_method(method, setting="code") == method_class(method).of("code")


def test_a_name_brings_its_settings_and_others_go_before():
    paper = create_method("remix", setting="paper", samples=7)
    assert (paper.setting, paper.samples, paper.classifiers) == ("paper", 7, "all")
    assert paper.inversion.prior == PriorSettings("laplace-paper", "frobenius", 0.5)
    assert paper.inversion.statistics_form == "nll"


def test_pmi_and_remix_of_the_paper_differ_in_how_statistics_are_modelled_only():
    pmi, remix = (plain(create_method(name, setting="paper")) for name in ("pmi", "remix"))
    assert remix.pop("view") == "channels"
    same = overlay(create_method("remix", setting="paper"), {})  # remix with the statistics of pmi
    inversion = replace(same.inversion, statistics_form="kl", prior=create_method("pmi").inversion.prior)
    expected = plain(replace(same, inversion=inversion))
    expected.pop("view")
    assert pmi == expected


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(
        ValueError, match=r"no settings named 'papr' \(did you mean 'paper'\?\); there are: paper, code"
    ):
        create_method("remix", setting="papr")
    with pytest.raises(SettingError, match=r"settings\.setting: method 'pmi' has no settings named 'ous'"):
        build_config(read_preset("digits"), assignments={"method": "pmi", "settings.setting": "ous"})
    with pytest.raises(SettingError, match="no setting 'setting'"):
        build_config(read_preset("digits"), assignments={"method": "finetune", "settings.setting": "paper"})


@pytest.mark.parametrize(
    "preset", [*(f"{data}-{tasks}" for data in ("cifar100", "tiny") for tasks in (5, 10, 20)), "tiny-mini"]
)
@pytest.mark.parametrize("method", ["pmi", "remix"])
def test_the_benchmarks_of_the_paper_mean_the_paper(preset, method):
    assert build_config(read_preset(preset), assignments={"method": method}).settings.setting == "paper"


def test_a_preset_has_epochs_for_every_name():
    def found(setting):
        typed = parse_assignments([f"settings.setting={setting}"])
        settings = build_config(read_preset("cifar100-mini"), assignments={"method": "remix", **typed}).settings
        stages = settings.head, settings.last_block, settings.network, settings.balance
        return settings.setting, [stage.epochs for stage in stages], settings.network.lr, settings.balance.lr

    assert found("paper") == ("paper", [0, 0, 16, 4], 0.1, 0.005)
    assert found("code") == ("code", [2, 2, 12, 4], 0.01, 0.005)
    assert found("ours") == ("ours", [0, 0, 16, 4], 0.1, 0.05)


def test_what_is_typed_goes_before_what_belongs_to_a_name():
    typed = parse_assignments(["settings.setting=paper", "settings.network.epochs=3", "settings.inversion.labels=0"])
    found = build_config(read_preset("cifar100-mini"), assignments={"method": "remix", **typed}).settings
    assert (found.network.epochs, found.network.lr, found.inversion.labels) == (3, 0.1, 0.0)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_saved_configuration_is_read_as_it_was(setting):
    config = build_config(read_preset("digits"), assignments={"method": "remix", "settings.setting": setting})
    assert build_config(config.to_plain()) == config


def test_our_settings_are_the_improved_preset():
    ours = build_config(read_preset("cifar100-mini"), assignments={"method": "remix", "settings.setting": "ours"})
    assert ours == build_config(read_preset("cifar100-mini-improved"))
    found = ours.settings
    assert (found.follow, found.together, found.augment_replay) == ("drift", True, True)
    assert (found.scales.head, found.scales.hard) == (0.0, 0.5)
    assert found.inversion.prior.kind == "laplace"


# --- what they do ---


def test_the_weights_of_the_formula():
    engine = in_second_task()
    head = engine.student.head
    work = balance_head_by_formula(engine, 0.0)
    real, labels = next(engine.images(engine.present))
    replayed = engine.replay.draw(len(labels), engine.generator)
    found = work.losses(Batch(real, labels, replayed))
    assert set(found) == {"balanced"}
    counts = [0.0] * 4
    for label in [*engine.present.labels.tolist(), *engine.replay.labels.tolist()]:
        counts[label] += 1
    weights = [1 / count for count in counts]
    with torch.no_grad():
        features = torch.cat([engine.pooled(real), engine.pooled(replayed.items)])
        everything = torch.cat([labels, replayed.labels]).tolist()
        logs = torch.log_softmax(head(features), 1)
        naive = sum(-weights[y] / sum(weights) * float(logs[i, y]) for i, y in enumerate(everything)) / len(everything)
    assert float(found["balanced"].detach()) == pytest.approx(naive, rel=1e-4)
    assert set(balance_head_by_formula(engine, 2.0).losses(Batch(real, labels, replayed))) == {"balanced", "hard"}


def test_balancing_may_leave_the_old_logits_out():
    def terms(distils):
        engine = in_second_task(balance_distils=distils)
        stage = next(stage for stage in engine.method.stages("later") if stage.name == "balance the head")
        real, labels = next(engine.images(engine.present))
        return set(stage.start(engine).losses(Batch(real, labels, engine.replay.draw(len(labels), engine.generator))))

    assert terms(True) == {"balanced", "hard"}
    assert terms(False) == {"balanced"}


@pytest.mark.parametrize(("classifiers", "moves"), [("newest", False), ("all", True)])
def test_old_classifiers_learn_with_the_network_when_all_do(classifiers, moves):
    still = Training(0, 0.1)
    stages = {"head": still, "last_block": still, "balance": still, "network": Training(1, 0.1)}
    before = learned(tasks=1, **stages).student.head.classifier(0).weight.detach()
    after = learned(classifiers=classifiers, scales=LossScales(head=0.0), **stages).student.head.classifier(0).weight
    assert (not torch.equal(before, after.detach())) is moves


@pytest.mark.parametrize("again", [False, True])
def test_selectors_of_old_classes_are_trained_again_only_when_asked(again):
    recipe = SelectorRecipe(epochs=2, again=again)
    first = learned(tasks=1, selectors=recipe).memory.selectors
    second = learned(selectors=recipe).memory.selectors
    assert second.labels == (0, 1, 2, 3)
    assert torch.equal(first.weight[0], second.weight[0]) is not again


def test_statistics_are_of_augmented_images_when_asked():
    def means(augmented, augment):
        stream = tiny_stream()
        engine = tiny_engine("pmi", stream)
        engine.augment = augment
        # Selection off and no training: only the measuring may differ.
        changes = {"first": Training(0, 0.1), "selection": False, "measure_augmented": augmented}
        engine.method = replace(engine.method, **changes)
        engine.learn(stream[0])
        return engine.memory.gaussians.mean

    plain_images = means(False, Augment(2))
    assert torch.equal(plain_images, means(False, None))
    assert not torch.allclose(means(True, Augment(2)), plain_images)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["pmi", "remix"])
def test_every_named_setting_learns_two_tasks(name, setting):
    stream = tiny_stream()
    engine = tiny_engine(name, stream)
    short = plain(create_method(name, **tiny_settings(name)))
    steps = {key: short["inversion"][key] for key in ("block", "refine")}
    epochs = {key: {"epochs": 1} for key in ("first", "network", "balance")}
    few = {"samples": 20, "samples_per_task": 20, "selectors": {"epochs": 2}}
    engine.method = overlay(create_method(name, setting=setting), {**epochs, **few, "inversion": steps})
    for number in range(2):
        engine.learn(stream[number])
    correct, count = engine.evaluate(stream[1].test)
    assert 0 <= correct <= count
    if name == "remix":
        kind = engine.method.inversion.prior.kind
        assert any(kind in layer.covariances for layer in engine.memory.layers.values())


def test_a_frobenius_prior_without_covariances_is_refused_before_the_run():
    for method in ("pmi", "remix"):
        typed = {
            "method": method,
            "settings.inversion.prior.form": "frobenius",
            "settings.inversion.prior.kind": "none",
        }
        config = build_config(read_preset("digits"), assignments=typed)
        with pytest.raises(ValueError, match=r"'frobenius' compares covariances.*set prior\.kind|use view=channels"):
            config.settings.check(tiny_engine(method, tiny_stream()).backbone)


def test_a_frobenius_prior_of_maps_is_refused_before_the_run():
    backbone = tiny_engine("remix", tiny_stream()).backbone
    settings = create_method("remix", view="map", setting="paper")
    with pytest.raises(ValueError, match="covariances of channels"):
        settings.check(backbone)
