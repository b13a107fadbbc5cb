"""DeepInversion from noise: what it dreams, that it can be interrupted, and that it trains as ABD's version does."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny_engine, tiny_method, tiny_stream
from tiny_transformer import PlainConvolutions

from remix.inversion import PixelSettings, PriorSettings, Schedule
from remix.learning.engine import InterruptedInversion
from remix.learning.items import TensorReplay
from remix.learning.stage import Batch, Training
from remix.methods import create_method
from remix.networks import create_backbone

STREAM = tiny_stream()
NAME = "deepinversion-noise"


def in_second_task(steps: int):
    engine = tiny_engine(NAME, STREAM)
    engine.method = replace(engine.method, first=Training(20, 0.05))  # what knows nothing has nothing to show
    engine.learn(STREAM[0])
    engine.method = replace(engine.method, inversion=PixelSettings(Schedule(steps, 0.1), statistics=1.0, batch=30))
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    return engine


def test_the_old_model_comes_to_see_the_labels_in_what_was_noise():
    seen = []
    for steps in (1, 60):
        engine = in_second_task(steps)
        replay = engine.method.dream(engine)
        assert isinstance(replay, TensorReplay)
        assert len(replay) == 40
        assert set(replay.labels.tolist()) == {0, 1}
        seen.append(torch.nn.functional.cross_entropy(replay.logits, replay.labels))
    assert seen[1] < 0.5 * seen[0]


def test_an_interrupted_dream_goes_on_with_the_same_bits():
    whole = in_second_task(12)
    expected = whole.method.dream(whole)
    engine, steps = in_second_task(12), []

    def stop(progress):
        steps.append(progress)
        if len(steps) == 7:
            raise KeyboardInterrupt

    engine.inversion_step = stop
    with pytest.raises(InterruptedInversion) as interrupted:
        engine.method.dream(engine)
    again = in_second_task(12)
    again.inversion = interrupted.value.checkpoint
    assert torch.equal(again.method.dream(again).images, expected.images)


def test_it_trains_as_the_generator_s_version_does():
    engine = in_second_task(2)
    replay = engine.method.dream(engine)
    real, labels = next(iter(engine.images(STREAM[1].train)))
    batch = Batch(real, labels, replay.draw(len(labels), engine.generator))
    ours = engine.method.losses(engine)(batch)
    theirs = create_method("deepinversion").losses(engine)(batch)
    assert {name: float(term.detach()) for name, term in ours.items()} == {
        name: float(term.detach()) for name, term in theirs.items()
    }
    softened = (batch.replayed.logits / 2).softmax(1)
    engine.student.eval()
    ours = engine.method.losses(engine)(batch)
    student = (engine.student(*batch.replayed.items) / 2).log_softmax(1)
    naive = -sum(float(softened[i, k] * student[i, k]) for i in range(len(labels)) for k in range(2)) / len(labels)
    assert float(ours["generated"]) == pytest.approx(naive, rel=1e-4)


def test_what_cannot_work_is_refused():
    method = tiny_method(NAME)
    with pytest.raises(ValueError, match="BatchNorm layers, and PlainConvolutions has none"):
        method.check(PlainConvolutions())
    with pytest.raises(ValueError, match="no block of the network can be frozen"):
        method.check(create_backbone("convnet8"), start=1)
    with pytest.raises(ValueError, match="the prior 'laplace' needs covariances"):
        replace(method, inversion=PixelSettings(prior=PriorSettings("laplace"))).check(create_backbone("convnet8"))
    with pytest.raises(ValueError, match=r"set inversion\.features to 0"):
        replace(method, inversion=PixelSettings(features=1.0))
    with pytest.raises(ValueError, match="one of them above 0"):
        replace(method, samples=0, samples_per_task=0)
