"""LDC: its terms against loops, means that follow a learned matrix, the nearest direction."""

import pytest
import torch
from later_task import STREAM, in_second_task
from tiny import tiny_engine

from remix.learning.stage import Batch
from remix.methods import create_method


def test_the_terms_of_a_later_task():
    engine = in_second_task("ldc")
    work = engine.method.stages("later")[0].start(engine)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    with torch.no_grad():
        found = work.losses(Batch(real, labels, None))
        logits = engine.modules["answers"](engine.backbone.pooled(real.x))
        answers = engine.modules["answers before"](engine.teacher.backbone.pooled(real.x))
    assert (logits.shape[1], answers.shape[1]) == (4, 2)
    p, q = (answers / 2).softmax(1), (logits[:, :2] / 2).log_softmax(1)
    naive = -sum(float(p[i, j] * q[i, j]) for i in range(len(p)) for j in range(2)) / len(p)
    assert float(found["distillation"]) == pytest.approx(10 * naive, rel=1e-4)
    new = logits[:, 2:].log_softmax(1)
    naive = -sum(float(new[i, int(label) - 2]) for i, label in enumerate(labels)) / len(labels)
    assert float(found["local"]) == pytest.approx(naive, rel=1e-4)


def test_what_the_head_was_before_a_task_stays_while_it_learns():
    engine = tiny_engine("ldc", STREAM)
    engine.learn(STREAM[0])
    first = engine.modules["answers"].classifier(0).weight.clone()
    seen = []
    engine.learn(STREAM[1], lambda: seen.append(engine.modules.get("answers before")))
    assert torch.equal(seen[1].classifier(0).weight, first)
    assert not torch.equal(engine.modules["answers"].classifier(0).weight, first)
    assert list(engine.modules) == ["answers"]


def test_means_follow_the_matrix_and_the_nearest_direction_wins():
    engine = in_second_task("ldc")
    known = engine.memory.gaussians.mean.clone()
    work = engine.method.stages("later")[1].start(engine)
    with torch.no_grad():
        work.modules[0].weight.copy_(2 * torch.eye(known.shape[1]))
    engine.method.remember(engine, STREAM[1].train)
    torch.testing.assert_close(engine.memory.gaussians.mean[:2], 2 * known)
    features = torch.randn(5, known.shape[1], generator=torch.Generator().manual_seed(0))
    means = engine.memory.gaussians.mean
    for row, logits in zip(features, engine.student.head(features), strict=True):
        away = [float((row / row.norm() - mean / mean.norm()).norm()) for mean in means]
        assert int(logits.argmax()) == away.index(min(away))


def test_it_says_what_it_keeps_and_what_it_cannot_learn():
    engine = tiny_engine("ldc", STREAM)
    engine.learn(STREAM[0])
    found = {item.kind: item.bytes for item in engine.memory.describe()}
    assert found["class Gaussians"] == 4 * 2 * 2 * engine.backbone.feature_dim  # of which the means are used
    with pytest.raises(ValueError, match="no place for images of known classes"):
        create_method("ldc").stages("extend")
