"""Parts that methods share: replay from a generator network trained on the frozen old model."""

from __future__ import annotations

from remix.inversion import (
    GeneratorSettings,
    GeneratorSource,
    ImageGenerator,
    Knowledge,
    doublings_to,
    train_generator,
)
from remix.learning.learner import InterruptedInversion, Learner
from remix.learning.method import Method
from remix.learning.replay import GeneratorReplay
from remix.methods.priors import check_prior_kind
from remix.networks import Backbone

__all__ = ["GENERATOR", "Generated"]

GENERATOR = "generator"
"""Name of the generator among the learner's modules."""


class Generated(Method):
    """A method that replays from a generator: a new one in every task, or, where it is carried, the last one further.

    Attributes:
        generator: its training; a setting of the method.

    """

    generator: GeneratorSettings

    def check(self, backbone: Backbone) -> None:
        """Whether a generator can make such images, and without covariances."""
        _, height, width = backbone.input_shape
        doublings_to(height, width)  # raises for sizes that it cannot reach
        check_prior_kind(self.name, self.generator.prior)

    def dream(self, learner: Learner) -> GeneratorReplay:
        """Train the generator on the frozen teacher."""
        source = train_generator(
            _knowledge(learner),
            learner.generator,
            self.generator,
            network=_network(learner, self.generator),
            progress=learner.inversion_step,
            resume=learner.inversion,
        )
        if not source.finished:
            raise InterruptedInversion(source.checkpoint)
        return _replay(learner, source)

    def dream_work(self, learner: Learner) -> tuple[int, int]:
        """Images that the generator is trained on: each is made once and seen by the network once."""
        count = self.generator.schedule.steps * self.generator.batch
        return count, count

    def restore_replay(self, learner: Learner) -> GeneratorReplay:
        """From the generator as it was saved."""
        network = _network(learner, self.generator)
        return _replay(learner, GeneratorSource(network, _knowledge(learner), True, {}, None))


def _knowledge(learner: Learner) -> Knowledge:
    assert learner.teacher is not None
    return Knowledge(learner.teacher.backbone, classify=learner.teacher.head)


def _replay(learner: Learner, source: GeneratorSource) -> GeneratorReplay:
    assert learner.teacher is not None
    return GeneratorReplay(source, learner.teacher)


def _network(learner: Learner, settings: GeneratorSettings) -> ImageGenerator:
    shape = learner.backbone.input_shape
    return learner.module(GENERATOR, lambda: ImageGenerator(shape, settings.noise, learner.generator))
