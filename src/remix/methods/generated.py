"""Parts that methods share: replay from a generator network trained on the frozen old model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from remix.inversion import (
    GeneratorSettings,
    GeneratorSource,
    ImageGenerator,
    Knowledge,
    doublings_to,
    train_generator,
)
from remix.learning.engine import Engine, InterruptedInversion
from remix.learning.items import GeneratorReplay
from remix.learning.method import Method
from remix.methods.plain import check_prior_kind
from remix.networks import Backbone

__all__ = ["GENERATOR", "Generated"]

GENERATOR = "generator"
"""Name of the generator among the engine's modules."""


class Generated(Method):
    """A method that replays from a generator: a new one in every task, or, where it is carried, the last one further.

    Attributes:
        image_generator: its training; a setting of the method.

    """

    by_steps: ClassVar[bool] = False
    renamed: ClassVar[Mapping[str, str]] = {"generator": "image_generator"}
    image_generator: GeneratorSettings

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Whether a generator can make such images, and without covariances."""
        if start:
            raise ValueError(f"the method {self.name!r} generates images, so no block of the network can be frozen")
        _, height, width = backbone.input_shape
        doublings_to(height, width)  # raises for sizes that it cannot reach
        check_prior_kind(self.name, self.image_generator.prior)

    def dream(self, engine: Engine) -> GeneratorReplay:
        """Train the generator on the frozen teacher."""
        source = train_generator(
            _knowledge(engine),
            engine.generator,
            self.image_generator,
            network=_network(engine, self.image_generator),
            progress=engine.inversion_step,
            resume=engine.inversion,
        )
        if not source.finished:
            raise InterruptedInversion(source.checkpoint)
        return _replay(engine, source)

    def dream_work(self, tasks: int) -> tuple[int, int]:
        """Images that the generator is trained on: each is made once and seen by the network once."""
        count = self.image_generator.schedule.steps * self.image_generator.batch
        return count, count

    def restore_replay(self, engine: Engine) -> GeneratorReplay:
        """From the generator as it was saved."""
        network = _network(engine, self.image_generator)
        return _replay(engine, GeneratorSource(network, _knowledge(engine), True, {}, None))


def _knowledge(engine: Engine) -> Knowledge:
    assert engine.teacher is not None
    return Knowledge(engine.teacher.backbone, classify=engine.teacher.head)


def _replay(engine: Engine, source: GeneratorSource) -> GeneratorReplay:
    assert engine.teacher is not None
    return GeneratorReplay(source, engine.teacher)


def _network(engine: Engine, settings: GeneratorSettings) -> ImageGenerator:
    shape = engine.backbone.input_shape
    return engine.module(GENERATOR, lambda: ImageGenerator(shape, settings.noise, engine.generator))
