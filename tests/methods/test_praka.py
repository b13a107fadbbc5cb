"""PRAKA: its losses against loops, its two heads, its mixed prototypes."""

import math

import pytest
import torch
from tiny import tiny_engine, tiny_method, tiny_stream

from remix.experiments.config import build_config, read_preset
from remix.experiments.plan import load_tasks, plan_run
from remix.learning.stage import Batch
from remix.methods import create_method
from remix.methods.praka import JOINT, aggregation, beta_half, mixed_prototypes
from remix.methods.rotations import rotated
from remix.networks import create_backbone

STREAM = tiny_stream()


def softmax(values):
    hot = [math.exp(float(value)) for value in values]
    return [value / sum(hot) for value in hot]


def test_images_are_turned_by_quarters_one_rotation_after_the_other():
    images = torch.arange(2 * 1 * 3 * 3.0).reshape(2, 1, 3, 3)
    found = rotated(images)
    assert torch.equal(found[:2], images)
    assert torch.equal(found[2], torch.tensor([[[2.0, 5, 8], [1, 4, 7], [0, 3, 6]]]))
    assert torch.equal(found[5], images[1].flip(1, 2))
    assert len(found) == 8


@pytest.mark.parametrize("rotations", [4, 1])
def test_aggregation_is_the_divergence_from_the_mean_of_matching_logits(rotations):
    torch.manual_seed(0)
    count, classes = 3, 5
    joint, plain = torch.randn(rotations * count, 4 * classes, requires_grad=True), torch.randn(count, classes)
    naive = 0.0
    for row in range(count):
        mean = [
            sum(float(joint[turn * count + row, 4 * k + turn]) for turn in range(rotations)) / rotations
            for k in range(classes)
        ]
        target, given = softmax(mean), softmax(plain[row])
        naive += sum(p * math.log(p / q) for p, q in zip(target, given, strict=True)) / count
    found = aggregation(joint, plain)
    assert float(found) == pytest.approx(naive, rel=1e-4)
    assert not found.requires_grad  # the joint head teaches and is not taught


def test_draws_have_the_moments_of_beta_one_half():
    draws = beta_half(20_000, torch.Generator().manual_seed(0))
    assert float(draws.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(draws.var()) == pytest.approx(1 / 8, abs=0.003)
    assert float((draws < 0.1).float().mean()) == pytest.approx(2 / math.pi * math.asin(math.sqrt(0.1)), abs=0.01)


def test_a_prototype_is_mixed_with_a_feature_or_moved_away_from_one():
    prototypes, features = torch.zeros(5000, 1), torch.ones(7, 1)
    shares = mixed_prototypes(prototypes, features, torch.Generator().manual_seed(0))[:, 0]
    assert float((shares < 0).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert float(shares.abs().max()) <= 0.6 + 1e-6
    # Of shares above 0.6, six tenths are taken: from 0.36 to 0.6 there are both kinds.
    below = 2 / math.pi * math.asin(math.sqrt(0.36))
    assert float((shares.abs() < 0.36).float().mean()) == pytest.approx(below, abs=0.03)
    point, other = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    mixed = mixed_prototypes(point, other, torch.Generator().manual_seed(1))
    assert float(mixed[0, 0] / 2 + mixed[0, 1]) == pytest.approx(1)  # on the line through both


def test_the_terms_of_a_later_task():
    """Against what the specification says of them, written out."""
    engine = tiny_engine("praka", STREAM)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    work = engine.method.stages("later")[0].start(engine)
    engine.student.eval()
    for parameter in engine.student.backbone.parameters():
        parameter.data += 0.01
    real, labels = next(iter(engine.images(STREAM[1].train)))
    found = work.losses(Batch(real, labels, None))
    kinds = {"joint", "plain", "aggregation"}
    assert set(found) == kinds | {"features"} | {f"old {kind}" for kind in kinds}
    joint, plain, old = engine.modules[JOINT], engine.student.head, engine.teacher.backbone
    cross_entropy = distance = 0.0
    for turn in range(4):
        images = torch.stack([torch.rot90(image, turn, (1, 2)) for image in real.x])
        features = engine.backbone.pooled(images)
        distance += float((features - old.pooled(images)).square().sum())
        hot = (joint(features) / 0.1).log_softmax(1)
        cross_entropy -= sum(float(hot[i, 4 * int(label) + turn]) for i, label in enumerate(labels))
        if not turn:
            right = (plain(features) / 0.1).log_softmax(1)[torch.arange(len(labels)), labels]
            assert float(found["plain"]) == pytest.approx(-float(right.mean()), rel=1e-4)
    assert float(found["joint"]) == pytest.approx(cross_entropy / (4 * len(labels)), rel=1e-4)
    assert float(found["features"]) == pytest.approx(15 * math.sqrt(distance), rel=1e-4)
    heavier = create_method("praka", prototypes=30.0, temperature=0.1)
    state = engine.generator.get_state()
    light = work.losses(Batch(real, labels, None))
    engine.generator.set_state(state)
    heavy = heavier.stages("later")[0].start(engine).losses(Batch(real, labels, None))
    torch.testing.assert_close(heavy["old plain"], 2 * light["old plain"])


def test_the_joint_head_grows_with_the_classes_and_keeps_what_it_learned():
    engine = tiny_engine("praka", STREAM)
    engine.learn(STREAM[0])
    learned = engine.modules[JOINT].classifier(0).weight.detach().clone()
    assert engine.modules[JOINT].task_sizes == (8,)
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    assert engine.modules[JOINT].task_sizes == (8, 8)
    assert torch.equal(engine.modules[JOINT].classifier(0).weight, learned)


def test_a_plan_counts_every_rotation():
    configs = [build_config(read_preset("digits"), assignments={"method": name}) for name in ("praka", "finetune")]
    work = [plan_run(config, load_tasks(config.data, None)).work for config in configs]
    assert work[0] == 4 * work[1]  # as many epochs


def test_what_cannot_be_turned_is_refused():
    wide = create_backbone("resnet20", width=2, input_shape=(1, 8, 12))
    with pytest.raises(ValueError, match="8 x 12 pixels: make them square"):
        tiny_method("praka").check(wide)
    with pytest.raises(ValueError, match="no block of the network can be frozen"):
        tiny_method("praka").check(create_backbone("convnet8"), start=1)
    with pytest.raises(ValueError, match="no place for images of known classes"):
        tiny_method("praka").stages("extend")
