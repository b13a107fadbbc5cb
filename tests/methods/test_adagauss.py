"""AdaGauss: its terms against loops, what it draws, what it keeps."""

import pytest
import torch
from later_task import STREAM, in_second_task
from tiny import tiny_engine

from remix.learning.stage import Batch
from remix.methods import create_method


def test_the_terms_of_a_later_task():
    engine = in_second_task("adagauss", rotations=False)
    work = engine.method.stages("later")[0].start(engine)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    with torch.no_grad():
        found = work.losses(Batch(real, labels, None))
        now, then = engine.backbone.pooled(real.x), engine.teacher.backbone.pooled(real.x)
        mapped, logits = engine.modules["distiller"](now), engine.modules["task head"](now)
    naive = sum(float((mapped[i, j] - then[i, j]) ** 2) for i in range(len(now)) for j in range(now.shape[1]))
    assert float(found["features"]) == pytest.approx(10 * naive / now.numel(), rel=1e-4)
    naive = -sum(float(logits[i].log_softmax(0)[int(label) - 2]) for i, label in enumerate(labels)) / len(labels)
    assert float(found["local"]) == pytest.approx(naive, rel=1e-4)
    centred = now - now.mean(0)
    covariance = centred.T @ centred / (len(now) - 1)
    root = torch.linalg.cholesky(covariance + 1e-6 * (covariance.diagonal().mean() + 1) * torch.eye(len(covariance)))
    naive = -sum(min(float(root[i, i]), 1.0) for i in range(len(root))) / len(root)
    assert float(found["anti-collapse"]) == pytest.approx(naive, rel=1e-3)


def test_the_map_learns_from_old_to_new_features_and_the_network_rests():
    engine = in_second_task("adagauss")
    work = engine.method.stages("later")[1].start(engine)
    assert work.modules == [engine.modules["adapter"]]
    real, labels = next(iter(engine.images(STREAM[1].train)))
    found = work.losses(Batch(real, labels, None))
    now, then = engine.backbone.pooled(real.x).detach(), engine.teacher.backbone.pooled(real.x).detach()
    mapped = engine.modules["adapter"](then).detach()
    assert float(found["drift"].detach()) == pytest.approx(float((mapped - now).square().mean()), rel=1e-4)
    found["drift"].backward()
    assert all(parameter.grad is None for parameter in engine.backbone.parameters())


def test_in_the_first_hundredth_of_the_epochs_only_classifier_and_distiller_learn():
    engine = in_second_task("adagauss", rotations=False)
    long = create_method("adagauss", rotations=False)
    work = long.stages("later")[0].start(engine)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    for epoch, learns in ((0, False), (1, False), (2, True)):
        engine.stage_state.epoch = epoch
        found = work.losses(Batch(real, labels, None))
        sum(term for term in found.values() if term.requires_grad).backward()
        assert any(parameter.grad is not None for parameter in engine.backbone.parameters()) == learns


def test_old_classes_are_draws_through_the_map_and_new_ones_have_mirror_images():
    engine = in_second_task("adagauss")
    with torch.no_grad():
        for parameter in engine.method.stages("later")[1].start(engine).modules[0].parameters():
            parameter.zero_()
        engine.modules["adapter"].layers[2].bias.fill_(5.0)
    engine.method.remember(engine, STREAM[1].train)
    found = engine.memory.gaussians
    torch.testing.assert_close(found.mean[:2], torch.full_like(found.mean[:2], 5.0))
    images = torch.cat([items.x[labels == 2] for items, labels in engine.images(STREAM[1].train)])
    with torch.no_grad():
        both = engine.backbone.pooled(torch.cat([images, images.flip(3)]))
    torch.testing.assert_close(found.mean[2], both.mean(0), rtol=1e-4, atol=1e-4)
    assert found.counts == (30,) * 4


def test_it_keeps_means_and_covariances_and_says_their_bytes():
    engine = tiny_engine("adagauss", STREAM)
    engine.learn(STREAM[0])
    dim = engine.backbone.feature_dim
    found = {item.kind: item.bytes for item in engine.memory.describe()}
    assert found["class Gaussians"] == 4 * 2 * (2 * dim + dim * dim)
    assert set(found) == {"class Gaussians", "names"}
    assert engine.student.head.kind == "quadratic"
    assert engine.modules == {}


def test_what_it_cannot_learn_is_told():
    with pytest.raises(ValueError, match="task 2 has only one"):
        create_method("adagauss").check_tasks([["a", "b"], ["c"]])
    with pytest.raises(ValueError, match="must not be negative"):
        create_method("adagauss", collapse=-1.0)
    with pytest.raises(ValueError, match="no place for images of known classes"):
        create_method("adagauss").stages("extend")
    engine = tiny_engine("adagauss", STREAM)
    engine.batch_size = engine.backbone.feature_dim
    with pytest.raises(ValueError, match="the term against collapse needs batches of more images"):
        engine.learn(STREAM[0])
