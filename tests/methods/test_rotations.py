"""Images in four rotations, each of which makes classes of its own."""

import pytest
import torch
from tiny import tiny_stream

from remix.learning import Engine
from remix.learning.stage import Batch, Training
from remix.methods import create_method
from remix.methods.rotations import rotated
from remix.methods.task_heads import TASK_HEAD
from remix.networks import Classifier, LinearHead, create_backbone


def test_the_first_classes_may_be_learned_in_four_rotations():
    stream = tiny_stream()
    backbone = create_backbone("convnet8", width=4, generator=torch.Generator().manual_seed(0))
    method = create_method("lda", first=Training(2, 0.05), rotations=True)
    engine = Engine(Classifier(backbone, LinearHead(backbone.feature_dim)), method, stream.normalisation)
    engine.present = stream[0].train
    engine._prepare(stream[0])
    work = method.stages("first")[0].start(engine)
    real, labels = next(iter(engine.images(stream[0].train)))
    backbone.eval()
    with torch.no_grad():
        found = work.losses(Batch(real, labels, None))["cross-entropy"]
        logits = engine.modules[TASK_HEAD](backbone.pooled(rotated(real.x))).log_softmax(1)
    classes = int(labels.max()) + 1
    wanted = [int(label) + classes * turn for turn in range(4) for label in labels]
    naive = -sum(float(row[label]) for row, label in zip(logits, wanted, strict=True)) / len(wanted)
    assert float(found) == pytest.approx(naive, rel=1e-4)
    engine.done = 1
    engine.learn(stream[0])
    assert engine.student.head.num_classes == classes
    assert method.stages("first")[0].passes == 4
    wide = create_backbone("resnet20", width=4, input_shape=(1, 8, 6))
    with pytest.raises(ValueError, match="the method lda turns images by 90 degrees"):
        method.check(wide)
