"""Drift: its terms, its maps, the Gaussians that follow, the heads solved from them."""

from dataclasses import replace

import pytest
import torch
from later_task import in_second_task
from tiny import tiny_engine, tiny_stream

import remix.methods.drift as drift_module
from remix.data import TaskStream, load
from remix.experiments.config import build_config, read_preset
from remix.experiments.plan import load_tasks, plan_run
from remix.inversion import LayerwiseSettings, PriorSettings, Schedule
from remix.learning.engine_state import engine_tensors, replay_tensors, restore
from remix.learning.stage import Batch
from remix.methods import create_method
from remix.methods.drift import old_variance
from remix.methods.drifted import drawn_through, shrunk, tied
from remix.methods.solved_heads import bayes_head, covariances, last_block, linear_head, solved_head
from remix.methods.step_features import stage_ends
from remix.networks import create_backbone
from remix.statistics import Drift, MlpDrift, class_gaussians, fit_mlp_drift, fit_shift

STREAM = tiny_stream()
SYNTHETIC = {
    "samples": 20,
    "samples_per_task": 20,
    "inversion": LayerwiseSettings(block=Schedule(2, 0.5), refine=Schedule(3, 0.2), prior=PriorSettings("laplace")),
}
DCT = LayerwiseSettings(prior=PriorSettings("laplace-dct"))
BACKBONE = create_backbone("convnet8", width=1)


def rows(count=200, dim=BACKBONE.feature_dim, classes=3):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    mixing = torch.randn(dim, dim, generator=generator)
    return torch.randn(count, dim, generator=generator) @ mixing + 3 * torch.eye(classes, dim)[labels], labels


def test_the_terms_of_a_later_task():
    engine = tiny_engine("drift", STREAM)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    work = engine.method.stages("later")[0].start(engine)
    engine.student.eval()
    for parameter in engine.student.backbone.parameters():
        parameter.data += 0.01
    real, labels = next(iter(engine.images(STREAM[1].train)))
    found = work.losses(Batch(real, labels, None))
    now, then = engine.backbone.pooled(real.x), engine.teacher.backbone.pooled(real.x)
    variance = old_variance(engine)
    assert float(found["features"].detach()) == pytest.approx(float(((now - then) ** 2 / variance).mean()), rel=1e-4)
    head = engine.modules["task head"]
    hot = head(now).log_softmax(1)
    assert hot.shape[1] == 2  # the classes of the task alone
    naive = -sum(float(hot[i, int(label) - 2]) for i, label in enumerate(labels)) / len(labels)
    assert float(found["local"].detach()) == pytest.approx(naive, rel=1e-4)


def test_features_are_held_in_units_of_the_old_model_s_spread_over_the_new_images():
    engine = tiny_engine("drift", STREAM)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    images = torch.cat([items.x for items, _ in engine.images(STREAM[1].train)])
    with torch.no_grad():
        expected = engine.teacher.backbone.pooled(images).var(0, correction=0)
    torch.testing.assert_close(old_variance(engine), expected.clamp_min(0.01 * expected.mean()), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("map", ["shift", "affine", "mlp"])
def test_gaussians_follow_features_that_shift(map):
    before, labels = rows(600)
    known = class_gaussians(before, labels, correlated=True)
    engine = tiny_engine("drift", STREAM)
    moved = create_method("drift", map=map)._moved(engine, known, before, before + 2)
    away = (moved.mean - known.mean - 2).abs() / known.std
    assert float(away.max()) < (0.15 if map == "mlp" else 1e-3)  # draws have errors


def test_an_mlp_learns_what_is_not_affine_and_few_images_get_the_affine_map():
    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    y = x + x.square()
    found = fit_mlp_drift(x, y, torch.Generator().manual_seed(1))
    assert isinstance(found, MlpDrift)
    assert float((found(x) - y).square().mean()) < 0.2 * float((found.drift(x) - y).square().mean())
    assert isinstance(fit_mlp_drift(x[:39], y[:39], torch.Generator()), Drift)
    torch.testing.assert_close(fit_shift(x, x + 1)(x), x + 1)


def test_draws_through_a_map_have_its_moments():
    features, labels = rows()
    known = class_gaussians(features, labels, correlated=True)
    found = drawn_through(known, lambda x: 2 * x + 1, 4000, torch.Generator().manual_seed(0))
    assert found.counts == known.counts
    assert float(((found.mean - 2 * known.mean - 1) / known.std).abs().max()) < 0.2
    torch.testing.assert_close(found.std, 2 * known.std, rtol=0.1, atol=1e-3)


def test_one_covariance_for_all_is_the_mean_and_few_images_correlate_less():
    features, labels = rows(12)
    known = class_gaussians(features, labels, correlated=True)
    mean = covariances(known).mean(0)
    assert all(torch.allclose(one, mean, atol=1e-3) for one in covariances(tied(known)))
    share = 4 / (4 + known.dim)  # four images a class
    torch.testing.assert_close(shrunk(known).correlation[0, 0, 1], share * known.correlation[0, 0, 1])
    torch.testing.assert_close(shrunk(known).std, known.std)


@pytest.mark.parametrize("kind", ["linear", "discriminant", "bayes"])
def test_solved_heads_tell_classes_apart_that_can_be_told(kind):
    features, labels = rows(300)
    features = torch.randn(300, BACKBONE.feature_dim, generator=torch.Generator().manual_seed(0))
    features += 6 * torch.eye(3, BACKBONE.feature_dim)[labels]
    head = solved_head(kind, last_block(BACKBONE), (2, 1), class_gaussians(features, labels, correlated=True))
    assert float((head(features).argmax(1) == labels).float().mean()) > 0.97
    assert head.task_sizes == (2, 1)


def test_distances_are_those_of_unit_vectors_in_shrunk_correlations():
    features, labels = rows(120)
    gaussians = class_gaussians(features, labels, correlated=True)
    found = bayes_head(last_block(BACKBONE), (3,), gaussians, 3.0)(features[:1])[0]
    for label in range(3):
        covariance = covariances(gaussians)[label]
        covariance = covariance + 3 * covariance.diagonal().mean() * torch.eye(len(covariance))
        deviation = covariance.diagonal().sqrt()
        away = (features[0] / features[0].norm() - gaussians.mean[label] / gaussians.mean[label].norm()).double()
        naive = -away @ torch.linalg.inv(covariance / torch.outer(deviation, deviation)) @ away
        assert float(found[label]) == pytest.approx(float(naive), rel=1e-3)


def test_the_linear_head_has_the_least_cross_entropy():
    features, labels = rows(90)
    head = linear_head(last_block(BACKBONE), (3,), features, labels).double()
    loss = torch.nn.functional.cross_entropy

    def at(step):
        torch.manual_seed(1)
        weight = head.weight + step * torch.randn_like(head.weight)
        return float(loss(features.double() @ weight.T + head.bias, labels))

    assert at(0.0) < min(at(0.05), at(-0.05))


@pytest.mark.parametrize("changes", [{}, {"distil_on": "both", "witnesses": "both", "covariance": "laplace"}])
def test_going_on_from_a_saved_state_gives_the_same_bits(changes):
    whole = tiny_engine("drift", STREAM)
    whole.method = replace(whole.method, **changes, **SYNTHETIC)
    whole.learn(STREAM[0])
    saved = []

    def save():
        if whole.done == 2 and whole.stage_state.epoch == 1:
            tensors, record = engine_tensors(whole)
            replay = {name: tensor.clone() for name, tensor in replay_tensors(whole).items()}
            saved.append(({name: tensor.clone() for name, tensor in tensors.items()}, record, replay))

    whole.learn(STREAM[1], save)
    other = tiny_engine("drift", STREAM, seed=1)
    other.method = whole.method
    restore(other, *saved[0])
    other.learn(STREAM[1])
    one, two = whole.student.state_dict(), other.student.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_only_sums_are_kept_and_their_bytes_are_told():
    engine = tiny_engine("drift", STREAM)
    engine.learn(STREAM[0])
    dim = stage_ends(engine.backbone).dim
    found = [item for item in engine.memory.describe() if item.kind == "class Gaussians"]
    assert [item.bytes for item in found] == [4 * 2 * (2 * dim + dim * dim)]


def test_a_plan_counts_the_rotations_of_the_first_task():
    configs = [
        build_config(read_preset("digits"), assignments={"method": "drift", "settings.rotations": turned})
        for turned in (False, True)
    ]
    plans = [plan_run(config, load_tasks(config.data, None)).tasks for config in configs]
    assert plans[1][0].work == 4 * plans[0][0].work
    assert plans[1][1].work == plans[0][1].work
    assert not plans[0][1].pseudo


@pytest.mark.parametrize(("distil_on", "witnesses"), [("both", "new"), ("new", "synthetic"), ("both", "both")])
def test_synthetic_images_are_distilled_on_and_tell_the_drift(distil_on, witnesses, monkeypatch):
    seen = []
    fit = drift_module.fit_mlp_drift
    monkeypatch.setattr(drift_module, "fit_mlp_drift", lambda x, *more: seen.append(len(x)) or fit(x, *more))
    engine = tiny_engine("drift", STREAM)
    engine.method = replace(engine.method, distil_on=distil_on, witnesses=witnesses, map="mlp", **SYNTHETIC)
    engine.learn(STREAM[0])
    assert engine.memory.layers  # statistics of blocks and covariances, for the inversion
    dreamed = []
    engine.learn(STREAM[1], lambda: dreamed.append(engine.replay and len(engine.replay)))
    assert 40 in dreamed
    real = 2 * len(STREAM[1].train)
    assert seen == [{"new": real, "synthetic": 40, "both": real + 40}[witnesses]]
    assert engine.replay is None


def test_without_them_nothing_is_measured_or_made():
    engine = tiny_engine("drift", STREAM)
    engine.learn(STREAM[0])
    assert not engine.memory.layers
    assert create_method("drift").dream_work(3) == (0, 0)
    assert create_method("drift", witnesses="both", samples=10, samples_per_task=5).dream_work(2)[0] == 20


def test_classes_kept_as_laplace_covariances_cost_four_numbers_per_feature_and_tell_classes_apart():
    engine = tiny_engine("drift", STREAM)
    engine.method = replace(engine.method, covariance="laplace")
    for task in (STREAM[0], STREAM[1]):
        engine.learn(task)
    found = [item for item in engine.memory.describe() if item.kind == "class Gaussians"]
    assert found[0].bytes == 4 * 4 * 4 * stage_ends(engine.backbone).dim
    assert engine.memory.gaussians.correlation is None


def test_a_projector_stands_between_the_features_and_the_old_ones():
    engine = in_second_task("drift", projector=True)
    work = engine.method.stages("later")[0].start(engine)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    with torch.no_grad():
        found = work.losses(Batch(real, labels, None))
        now, then = engine.backbone.pooled(real.x), engine.teacher.backbone.pooled(real.x)
        naive = ((engine.modules["projector"](now) - then) ** 2 / old_variance(engine)).mean()
    assert float(found["features"]) == pytest.approx(float(naive), rel=1e-4)


def test_batchnorm_may_be_held_after_the_first_task():
    engine = in_second_task("drift", batchnorm="held")
    work = engine.method.stages("later")[0].start(engine)
    norms = [m for m in engine.backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert list(work.held) == norms != []


def test_few_witnesses_and_single_classes_are_told():
    few = tiny_stream(per_class=3)
    engine = tiny_engine("drift", few)
    engine.method = replace(engine.method, views=1, map="mlp")
    engine.learn(few[0])
    engine.learn(few[1])
    assert any("told by 6 images, too few for an mlp" in note for note in engine.notes)
    engine.method = replace(engine.method, map="affine")
    before, labels = rows(6, engine.backbone.feature_dim)
    engine.method._moved(engine, class_gaussians(before, labels), before, before)
    assert any("taken to have stayed" in note for note in engine.notes)
    digits = load("digits")
    alone = TaskStream(digits, tasks=2, classes=2)
    engine = tiny_engine("drift", alone)
    engine.learn(alone[0])
    assert any("the first task has one class" in note for note in engine.notes)
    engine.learn(alone[1])
    right, count = engine.evaluate(alone.test(1))
    assert right > 0.5 * count


def test_gaussians_of_other_features_are_not_gone_on_with():
    engine = tiny_engine("drift", STREAM)
    engine.method = replace(engine.method, blocks="last")
    engine.learn(STREAM[0])
    engine.method = replace(engine.method, blocks="stages")
    with pytest.raises(ValueError, match="drift reads 140: they are of an earlier version"):
        engine.learn(STREAM[1])


def test_bad_settings_and_few_images_are_told():
    with pytest.raises(ValueError, match="samples and samples_per_task"):
        create_method("drift", witnesses="both", samples=0, samples_per_task=0)
    with pytest.raises(ValueError, match=r"set settings\.view=map"):
        create_method("drift", witnesses="both", inversion=DCT).check(BACKBONE)
    with pytest.raises(ValueError, match="views must be at least 1"):
        create_method("drift", views=0)
    with pytest.raises(ValueError, match="no place for images of known classes"):
        create_method("drift").stages("extend")
    few = tiny_stream(per_class=3)
    engine = tiny_engine("drift", few)
    engine.method = replace(engine.method, covariance="dense")
    engine.learn(few[0])
    assert any("covariances are shrunk" in note for note in engine.notes)
