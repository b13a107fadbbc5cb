"""What holds features: pseudo-samples in the same batch, single classes, batches that are too small."""

import pytest
import torch
from later_task import STREAM, in_second_task

from remix.learning.feature_losses import feature_distillation
from remix.learning.items import Replayed
from remix.learning.stage import Batch
from remix.methods.held_features import check_batches, held_features
from remix.networks import Items


def test_the_distance_is_of_new_images_and_pseudo_samples_alike():
    engine = in_second_task("drift")
    losses = held_features(engine, feature_distillation, dreams=True)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    pseudo = torch.randn_like(real.x)
    replayed = Replayed(Items(pseudo), torch.zeros_like(labels), torch.zeros(len(labels), 2))
    with torch.no_grad():
        found = losses(Batch(real, labels, replayed))
        pairs = [(engine.backbone.pooled(x[None]), engine.teacher.backbone.pooled(x[None])) for x in (*real.x, *pseudo)]
    naive = sum(float((now - then).square().mean()) for now, then in pairs) / len(pairs)
    assert float(found["features"]) == pytest.approx(naive, rel=1e-3)
    alone = held_features(engine, feature_distillation)(Batch(real, labels, None))["local"]
    assert float(found["local"]) == pytest.approx(float(alone.detach()), rel=1e-4)  # pseudo-samples have no label there


def test_a_single_new_class_is_told_from_draws_of_the_old_ones():
    engine = in_second_task("drift", blocks="last")
    engine.student.head._sizes = (2, 1)
    losses = held_features(engine, feature_distillation)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    found = losses(Batch(real, torch.full_like(labels, 2), None))
    assert engine.modules["task head"].num_classes == 3
    assert float(found["local"].detach()) > 0.1  # not certain


def test_small_batches_are_refused_only_where_a_factor_is_needed():
    engine = in_second_task("drift")
    engine.batch_size = engine.backbone.feature_dim
    check_batches(engine, 0.0)
    with pytest.raises(ValueError, match=r"set batch_size=\d+, or settings.collapse=0"):
        check_batches(engine, 1.0)
