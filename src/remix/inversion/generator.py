"""Training a generator network to make images that a frozen network is content with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from remix.inversion.dream import OnProgress, noise
from remix.inversion.image_generator import ImageGenerator
from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Checkpoint, Optimisation
from remix.inversion.losses import ClassBalance, SelfConfidence, Smoothness
from remix.inversion.phases import Phase, run_phases
from remix.inversion.settings import GeneratorSettings
from remix.inversion.statistics_losses import StatisticsKl
from remix.inversion.terms import Term
from remix.inversion.variables import Render, Variable
from remix.inversion.watch import frozen

__all__ = ["GeneratorSource", "train_generator"]


class _NetworkVariable(Variable):
    """The weights of a generator; every step draws new noise. Its BatchNorm layers need the batch in one piece."""

    divisible = False

    def __init__(self, network: ImageGenerator, batch: int) -> None:
        self.network, self.count = network, batch
        self.names = [name for name, _ in network.named_parameters()]
        self.tensors = [parameter.detach().clone() for parameter in network.parameters()]
        self.buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        self._changed: dict[str, Tensor] = {}

    def draw(self, generator: torch.Generator) -> Render:
        z = noise((self.count, self.network.noise), self.tensors[0], generator)

        def render(leaves: list[Tensor], part: slice) -> tuple[Tensor, Tensor]:
            # BatchNorm writes its running averages to copies, which only a completed step makes permanent.
            self._changed = {name: buffer.clone() for name, buffer in self.buffers.items()}
            weights = dict(zip(self.names, leaves, strict=True))
            images = functional_call(self.network, {**weights, **self._changed}, (z,))
            return images, images

        return render

    def leaves(self, part: slice) -> list[Tensor]:
        return [tensor.detach().requires_grad_() for tensor in self.tensors]

    def commit(self) -> None:
        self.buffers = self._changed

    def extras(self) -> dict[str, Tensor]:
        return self.buffers

    def restore(self, extras: dict[str, Tensor]) -> None:
        self.buffers = {name: extras[name].to(buffer, copy=True) for name, buffer in self.buffers.items()}

    def write_back(self) -> None:
        with torch.no_grad():
            for parameter, tensor in zip(self.network.parameters(), self.tensors, strict=True):
                parameter.copy_(tensor)
            for name, buffer in self.network.named_buffers():
                buffer.copy_(self.buffers[name])


@dataclass(frozen=True, eq=False)
class GeneratorSource:
    """A trained generator and the network that labels its images.

    Attributes:
        network: the generator; train it further by giving it to `train_generator` again.
        knowledge: the frozen network.
        finished: whether the training came to its end.
        history: by term, the values in every step.
        checkpoint: where to go on, if it is not finished.

    """

    network: ImageGenerator
    knowledge: Knowledge
    finished: bool
    history: dict[str, list[float]]
    checkpoint: Checkpoint | None

    @torch.no_grad()
    def images(self, count: int, generator: torch.Generator) -> Tensor:
        """Images (count, C, H, W). Raises ValueError for a count below 1."""
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        with frozen(self.network):
            return self.network(noise((count, self.network.noise), self.knowledge.like, generator))

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Images (count, C, H, W), and the labels (count,) that the frozen network gives them. Raises as `images`."""
        assert self.knowledge.classify is not None
        images = self.images(count, generator)
        with frozen(*self.knowledge.networks):
            return images, self.knowledge.classify(self.knowledge.pooled(images)).argmax(1)


def train_generator(
    knowledge: Knowledge,
    generator: torch.Generator,
    settings: GeneratorSettings | None = None,
    *,
    network: ImageGenerator | None = None,
    progress: OnProgress | None = None,
    resume: Checkpoint | None = None,
) -> GeneratorSource:
    """Train a generator on the objective that ABD, R-DFCIL and the DeepInversion baseline share.

    Args:
        knowledge: the frozen network with its head.
        generator: source of everything random.
        settings: the published ones by default.
        network: a generator to go on with; it is changed. By default a new one.
        progress: called after every step.
        resume: the checkpoint of an unfinished run with the same arguments.

    Raises:
        ValueError: without a head, for a start inside the network, image sizes that the generator cannot make, or a
            checkpoint of another run.
        InversionStoppedError: if numbers stop being finite.

    """
    settings = settings or GeneratorSettings()
    knowledge.require_images("train_generator")
    if knowledge.classify is None:
        raise ValueError("a generator is trained on the head's decisions: give the head as classify=...")
    if network is None:
        network = ImageGenerator(knowledge.backbone.input_shape, settings.noise, generator).to(knowledge.like)
    classify = knowledge.classify
    terms = [
        Term("confidence", settings.confidence, SelfConfidence(classify, settings.temperature)),
        Term("balance", settings.balance, ClassBalance(classify)),
        Term("smoothness", settings.smoothness, Smoothness()),
        Term("statistics", settings.statistics, StatisticsKl(knowledge.moments, "model-to-batch", "mean")),
        *knowledge.prior_terms(settings.prior),
    ]
    network.train()
    variable = _NetworkVariable(network, settings.batch)
    task = Optimisation(terms, knowledge.backbone, knowledge.pooled, variable, settings.schedule, keep_best=False)
    with frozen(*knowledge.networks):
        reached = run_phases([Phase("generator", lambda _, __: task)], generator, progress=progress, resume=resume)
    variable.write_back()
    return GeneratorSource(network, knowledge, reached.finished, reached.history["generator"], reached.checkpoint)
