"""Gaussians that drift with the network, and what is trained on them and on views of pseudo-samples."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny import DRIFTING, tiny_learner, tiny_stream

from remix.data import Augment
from remix.experiments.config import build_config, read_preset
from remix.learning.learner import Learner
from remix.learning.replay import Replayed
from remix.learning.scaling import LossScales
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch
from remix.methods.distillation import distil
from remix.methods.drifted import balance_head_on_gaussians, drifted_gaussians
from remix.support.settings import SettingError

STREAM = tiny_stream()


@pytest.fixture
def in_second_task() -> Learner:
    """A learner that has grown for its second task and is not yet trained in it."""
    learner = tiny_learner(DRIFTING, STREAM)
    learner.learn(STREAM[0])
    learner.present = STREAM[1].train
    learner.teacher = copy.deepcopy(learner.student).requires_grad_(False).eval()
    learner.student.head.grow(2, generator=learner.generator)
    return learner


def test_a_network_that_has_not_moved_leaves_the_gaussians_alone(in_second_task):
    before, after = in_second_task.memory.gaussians, drifted_gaussians(in_second_task)
    for name in ("mean", "std", "correlation"):
        assert torch.allclose(getattr(after, name), getattr(before, name), atol=1e-4), name


def test_gaussians_follow_features_that_are_turned_and_shifted(in_second_task):
    learner = in_second_task
    turned = torch.linalg.qr(torch.randn(learner.backbone.feature_dim, learner.backbone.feature_dim))[0]
    learner.student.backbone.pooled = lambda images, pooled=learner.student.backbone.pooled: pooled(images) @ turned + 1
    before, after = learner.memory.gaussians, drifted_gaussians(learner)
    size = before.mean.norm(dim=1, keepdim=True)
    assert ((after.mean - (before.mean @ turned + 1)).norm(dim=1, keepdim=True) < 0.1 * size).all()


def test_the_head_alone_is_balanced_on_every_class_alike(in_second_task):
    learner = in_second_task
    stage = balance_head_on_gaussians(learner, Sgd(1, 0.1))
    assert stage.trained == [learner.student.head]
    stage.on_epoch()
    seen = []
    head = learner.student.head.forward
    learner.student.head.forward = lambda features: seen.append(len(features)) or head(features)
    images, labels = next(iter(learner.images(STREAM[1].train)))
    terms = stage.objective(Batch(images, labels, None))
    assert set(terms) == {"balanced"}
    assert seen == [len(labels) + 2 * -(-len(labels) // 2)]  # of two old classes as many as of two new ones


def test_together_batchnorm_sees_one_batch(in_second_task):
    learner = in_second_task
    learner.student.train()
    sizes = []
    norm = next(module for module in learner.student.modules() if isinstance(module, torch.nn.BatchNorm2d))
    norm.register_forward_pre_hook(lambda _, arguments: sizes.append(len(arguments[0])))
    real, labels = next(iter(learner.images(STREAM[1].train)))
    replayed = Replayed(torch.randn_like(real), torch.zeros(len(real), dtype=torch.int64), torch.zeros(len(real), 2))
    for together, expected in ((False, [len(real), len(real)]), (True, [2 * len(real)])):
        sizes.clear()
        distil(learner, LossScales(), relational=False, together=together)(Batch(real, labels, replayed))
        assert sizes == expected


def test_a_view_is_read_by_the_old_model_again(in_second_task):
    learner = in_second_task
    learner.augment, learner.student = Augment(2, flip=True), learner.student.eval()
    learner.student.load_state_dict(learner.teacher.state_dict(), strict=False)
    real, labels = next(iter(learner.images(STREAM[1].train)))
    pseudo = torch.randn_like(real)
    with torch.no_grad():
        stored = Replayed(pseudo, torch.zeros(len(real), dtype=torch.int64), learner.teacher(pseudo))
    batch = Batch(real, labels, stored)
    # The student is the teacher: it agrees with it on any image, so also on new views.
    for views in (False, True):
        found = distil(learner, LossScales(), relational=False, views=views)(batch)
        assert float(found["hard"].detach()) < 1e-5


def test_only_the_drifting_method_keeps_correlations_and_what_is_kept_of_old_classes_is_not_of_dreams():
    learner = tiny_learner(DRIFTING, STREAM)
    learner.learn(STREAM[0])
    first = learner.memory.gaussians
    assert first.correlation is not None
    learner.method = replace(learner.method, network=Sgd(0, 0.1), last_block=Sgd(0, 0.1))  # the backbone stays
    learner.learn(STREAM[1])
    second = learner.memory.gaussians
    assert second.labels == (0, 1, 2, 3)
    assert torch.allclose(second.mean[:2], first.mean, atol=1e-4)
    assert torch.allclose(second.correlation[:2], first.correlation, atol=1e-3)
    plain = tiny_learner("remix", STREAM)
    plain.learn(STREAM[0])
    assert plain.memory.gaussians.correlation is None


def test_a_word_that_is_no_way_to_follow_is_refused():
    with pytest.raises(SettingError, match="follow"):
        build_config(read_preset("digits"), assignments={"settings.follow": "dream"})
