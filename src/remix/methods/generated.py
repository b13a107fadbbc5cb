"""Parts that methods share: replay from a generator network trained on the frozen old model."""

from __future__ import annotations

from remix.inversion import GeneratorSettings, GeneratorSource, ImageGenerator, Knowledge, train_generator
from remix.learning.learner import InterruptedInversion, Learner
from remix.learning.replay import GeneratorReplay

__all__ = ["GENERATOR", "dream_generator", "generator_work", "restore_generator"]

GENERATOR = "generator"
"""Name of the generator among the learner's modules."""


def dream_generator(learner: Learner, settings: GeneratorSettings) -> GeneratorReplay:
    """Train a generator, or the one carried over from the last task further, and replay from it."""
    teacher = learner.teacher
    assert teacher is not None
    knowledge = Knowledge(teacher.backbone, classify=teacher.head)
    network = _network(learner, settings)
    source = train_generator(
        knowledge,
        learner.generator,
        settings,
        network=network,
        progress=learner.inversion_step,
        resume=learner.inversion,
    )
    if not source.finished:
        raise InterruptedInversion(source.checkpoint)
    return GeneratorReplay(source, teacher)


def restore_generator(learner: Learner, settings: GeneratorSettings) -> GeneratorReplay:
    """The replay of a learner that was saved after its generator was trained."""
    teacher = learner.teacher
    assert teacher is not None
    knowledge = Knowledge(teacher.backbone, classify=teacher.head)
    return GeneratorReplay(GeneratorSource(_network(learner, settings), knowledge, True, {}, None), teacher)


def generator_work(settings: GeneratorSettings) -> tuple[int, int]:
    """Images that a generator is trained on: each is made once and seen by the network once."""
    count = settings.schedule.steps * settings.batch
    return count, count


def _network(learner: Learner, settings: GeneratorSettings) -> ImageGenerator:
    shape = learner.backbone.input_shape
    return learner.module(GENERATOR, lambda: ImageGenerator(shape, settings.noise, learner.generator))
