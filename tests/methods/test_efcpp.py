"""EFC++: its terms against loops, what stays, what follows, what it keeps."""

import pytest
import torch
from later_task import STREAM, in_second_task
from tiny import tiny_engine

from remix.learning.stage import Batch
from remix.methods import create_method
from remix.methods.rotations import rotated
from remix.statistics import FeatureMatrix


def test_the_first_task_tells_rotations_apart_with_a_head_of_its_own():
    engine = tiny_engine("efcpp", STREAM)
    engine.present = STREAM[0].train
    engine._prepare(STREAM[0])
    work = engine.method.stages("first")[0].start(engine)
    engine.student.eval()
    real, labels = next(iter(engine.images(STREAM[0].train)))
    with torch.no_grad():
        found = work.losses(Batch(real, labels, None))
        features = engine.backbone.pooled(rotated(real.x))
        logits = torch.cat([engine.student.head(features), engine.modules["turned head"](features)], 1).log_softmax(1)
    wanted = [int(label) + 2 * turn for turn in range(4) for label in labels]
    naive = -sum(float(row[label]) for row, label in zip(logits, wanted, strict=True)) / len(wanted)
    assert float(found["cross-entropy"]) == pytest.approx(naive, rel=1e-4)


def test_the_terms_of_a_later_task():
    engine = in_second_task("efcpp")
    work = engine.method.stages("later")[0].start(engine)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    with torch.no_grad():
        found = work.losses(Batch(real, labels, None))
        now, then = engine.backbone.pooled(real.x), engine.teacher.backbone.pooled(real.x)
        logits = engine.student.head.newest()(now).log_softmax(1)
    matrix = engine.memory.get(FeatureMatrix.name).matrix
    metric = 10 * matrix + 0.1 * torch.eye(len(matrix))
    naive = sum(float((a - b) @ metric @ (a - b)) for a, b in zip(now, then, strict=True)) / len(now)
    assert float(found["features"]) == pytest.approx(naive, rel=1e-3)
    naive = -sum(float(logits[i, int(label) - 2]) for i, label in enumerate(labels)) / len(labels)
    assert float(found["local"]) == pytest.approx(naive, rel=1e-4)


def test_batchnorm_and_old_heads_stay_while_the_network_learns():
    engine = tiny_engine("efcpp", STREAM)
    engine.learn(STREAM[0])
    norms = [m for m in engine.backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    before = [{key: value.clone() for key, value in norm.state_dict().items()} for norm in norms]
    head, conv = engine.student.head.classifier(0).weight.clone(), next(engine.backbone.parameters()).clone()
    seen = []

    def look():
        if engine.done == 3:  # the network has learned, the heads are not balanced yet
            seen.append(torch.equal(engine.student.head.classifier(0).weight, head))

    engine.learn(STREAM[1], look)
    assert seen[0]
    assert not seen[-1]  # all heads are balanced
    assert not torch.equal(next(engine.backbone.parameters()), conv)
    for norm, old in zip(norms, before, strict=True):
        assert all(torch.equal(value, old[key]) for key, value in norm.state_dict().items())


def test_means_follow_and_covariances_stay_and_the_matrix_is_the_newest():
    engine = in_second_task("efcpp")
    known, matrix = engine.memory.gaussians, engine.memory.get(FeatureMatrix.name).matrix
    moved = engine.method._moved(engine, STREAM[1].train)
    assert torch.equal(moved.correlation, known.correlation)
    assert torch.equal(moved.std, known.std)
    assert not torch.equal(moved.mean, known.mean)
    engine.method.remember(engine, STREAM[1].train)
    assert torch.equal(engine.memory.gaussians.mean[:2], moved.mean)
    assert not torch.equal(engine.memory.get(FeatureMatrix.name).matrix, matrix)


def test_it_keeps_means_covariances_and_one_matrix_and_says_their_bytes():
    engine = tiny_engine("efcpp", STREAM)
    engine.learn(STREAM[0])
    dim = engine.backbone.feature_dim
    found = {item.kind: item.bytes for item in engine.memory.describe()}
    assert found["class Gaussians"] == 4 * 2 * (2 * dim + dim * dim)
    assert found["feature matrix"] == 4 * dim * dim
    assert engine.student.head.kind == "linear"


def test_what_it_cannot_learn_is_told():
    method = create_method("efcpp")
    with pytest.raises(ValueError, match="has only one"):
        method.check_tasks([["a"]])
    with pytest.raises(ValueError, match="learns with a linear head"):
        method.head_kind("cosine")
    with pytest.raises(ValueError, match="width above 0"):
        create_method("efcpp", width=0.0)
