"""Gaussians that drift with the network, and what is trained on them and on views of pseudo-samples."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny import DRIFTING, tiny_engine, tiny_stream

from remix.data import Augment
from remix.experiments.config import build_config, read_preset
from remix.learning.engine import Engine
from remix.learning.items import Replayed
from remix.learning.losses import LossScales
from remix.learning.stage import Batch, Training
from remix.methods.distillation import distil
from remix.methods.drifted import balance_head_on_gaussians, drifted_gaussians
from remix.networks import Items
from remix.support.settings import SettingError

STREAM = tiny_stream()


@pytest.fixture
def in_second_task() -> Engine:
    """A engine that has grown for its second task and is not yet trained in it."""
    engine = tiny_engine(DRIFTING, STREAM)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine.teacher = copy.deepcopy(engine.student).requires_grad_(False).eval()
    engine.student.head.grow(["2", "3"], generator=engine.generator)
    return engine


def test_a_network_that_has_not_moved_leaves_the_gaussians_alone(in_second_task):
    before, after = in_second_task.memory.gaussians, drifted_gaussians(in_second_task)
    for name in ("mean", "std", "correlation"):
        assert torch.allclose(getattr(after, name), getattr(before, name), atol=1e-4), name


def test_gaussians_follow_features_that_are_turned_and_shifted(in_second_task):
    engine = in_second_task
    turned = torch.linalg.qr(torch.randn(engine.backbone.feature_dim, engine.backbone.feature_dim))[0]
    engine.student.backbone.pooled = lambda *items, pooled=engine.student.backbone.pooled: pooled(*items) @ turned + 1
    before, after = engine.memory.gaussians, drifted_gaussians(engine)
    size = before.mean.norm(dim=1, keepdim=True)
    assert ((after.mean - (before.mean @ turned + 1)).norm(dim=1, keepdim=True) < 0.1 * size).all()


def test_the_head_alone_is_balanced_on_every_class_alike(in_second_task):
    engine = in_second_task
    work = balance_head_on_gaussians(engine, drifted_gaussians(engine))
    assert work.modules == [engine.student.head]
    seen = []
    head = engine.student.head.forward
    engine.student.head.forward = lambda features: seen.append(len(features)) or head(features)
    images, labels = next(iter(engine.images(STREAM[1].train)))
    terms = work.losses(Batch(images, labels, None))
    assert set(terms) == {"balanced"}
    assert seen == [len(labels) + 2 * -(-len(labels) // 2)]  # of two old classes as many as of two new ones


def test_together_batchnorm_sees_one_batch(in_second_task):
    engine = in_second_task
    engine.student.train()
    sizes = []
    norm = next(module for module in engine.student.modules() if isinstance(module, torch.nn.BatchNorm2d))
    norm.register_forward_pre_hook(lambda _, arguments: sizes.append(len(arguments[0])))
    real, labels = next(iter(engine.images(STREAM[1].train)))
    count = len(labels)
    pseudo = Items(torch.randn_like(real.x))
    replayed = Replayed(pseudo, torch.zeros(count, dtype=torch.int64), torch.zeros(count, 2))
    for together, expected in ((False, [count, count]), (True, [2 * count])):
        sizes.clear()
        distil(engine, LossScales(), relational=False, together=together)(Batch(real, labels, replayed))
        assert sizes == expected


def test_a_view_is_read_by_the_old_model_again(in_second_task):
    engine = in_second_task
    engine.augment, engine.student = Augment(2, flip=True), engine.student.eval()
    engine.student.load_state_dict(engine.teacher.state_dict(), strict=False)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    pseudo = torch.randn_like(real.x)
    with torch.no_grad():
        stored = Replayed(Items(pseudo), torch.zeros(len(labels), dtype=torch.int64), engine.teacher(pseudo))
    batch = Batch(real, labels, stored)
    # The student is the teacher: it agrees with it on any image, so also on new views.
    for views in (False, True):
        found = distil(engine, LossScales(), relational=False, augment=views)(batch)
        assert float(found["hard"].detach()) < 1e-5


def test_only_the_drifting_method_keeps_correlations_and_what_is_kept_of_old_classes_is_not_of_dreams():
    engine = tiny_engine(DRIFTING, STREAM)
    engine.learn(STREAM[0])
    first = engine.memory.gaussians
    assert first.correlation is not None
    engine.method = replace(engine.method, network=Training(0, 0.1), last_block=Training(0, 0.1))  # the backbone stays
    engine.learn(STREAM[1])
    second = engine.memory.gaussians
    assert second.labels == (0, 1, 2, 3)
    assert torch.allclose(second.mean[:2], first.mean, atol=1e-4)
    assert torch.allclose(second.correlation[:2], first.correlation, atol=1e-3)
    plain = tiny_engine("remix", STREAM)
    plain.learn(STREAM[0])
    assert plain.memory.gaussians.correlation is None


def test_a_word_that_is_no_way_to_follow_is_refused():
    with pytest.raises(SettingError, match="follow"):
        build_config(read_preset("digits"), assignments={"settings.follow": "dream"})
