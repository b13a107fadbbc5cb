"""SSRE: self-sustaining representation expansion (Zhu et al., 2022)."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.hooks import RemovableHandle

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.plain import everything
from remix.methods.prototypes import (
    class_prototypes,
    refuse_extending,
    refuse_single_classes,
    remember_prototypes,
)
from remix.methods.registry import method
from remix.networks import Backbone

__all__ = ["ADAPTERS", "Adapters", "Ssre", "likeness", "selected_cross_entropy", "selected_distillation"]

ADAPTERS = "adapters"
"""Name of the adapters among the engine's modules."""


@method("ssre")
@dataclass(frozen=True)
class Ssre(Method):
    """SSRE: 1x1 convolutions learn beside a frozen network and are folded into it; prototypes stand for old classes.

    Args:
        first: training of the first task, of everything.
        later: training of the adapters and the head in later tasks.
        temperature: that divides logits in every cross-entropy.
        prototypes: weight of the cross-entropy of prototypes of old classes.

    """

    keeps: ClassVar[str] = "the network, and of every class the mean of its features"
    by_steps: ClassVar[bool] = False
    first: Training = Training(100, 1e-3, (45, 90), optimiser="adam")
    later: Training = Training(60, 2e-4, (45,), optimiser="adam")
    temperature: float = 0.1
    prototypes: float = 10.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """There must be convolutions that an adapter can be folded into."""
        if not _convolutions(backbone.trainable(start)):
            raise ValueError(
                f"the method ssre learns 1x1 convolutions beside those of the network, and {type(backbone).__name__} "
                "has none that could take them: choose a convolutional network, or the method pmi"
            )

    def check_tasks(self, tasks: Sequence[Sequence[str]]) -> None:
        """Every task needs classes to tell apart."""
        refuse_single_classes(self.name, tasks)

    def stages(self, step: Step) -> list[Stage]:
        """Everything in the first task; later the adapters and the head."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._first)]
        return [Stage("adapters and head", self.later, self._later)]

    def _first(self, engine: Engine) -> Work:
        def losses(batch: Batch) -> dict[str, Tensor]:
            logits = engine.student.head(engine.pooled(batch.real))
            return {"cross-entropy": cross_entropy(logits / self.temperature, batch.labels)}

        return Work(everything(engine), losses)

    def _later(self, engine: Engine) -> Work:
        teacher, head, old = engine.teacher, engine.student.head, class_prototypes(engine)
        assert teacher is not None
        adapters = _adapters(engine)
        adapters.attach()

        def losses(batch: Batch) -> dict[str, Tensor]:
            features = engine.pooled(batch.real)
            with torch.no_grad():
                before = teacher.backbone.pooled(*batch.real).float()
            like_old = likeness(features, old)
            drawn = torch.randint(len(old), (len(batch.labels),), generator=engine.generator).to(old.device)
            return {
                "cross-entropy": selected_cross_entropy(head(features), batch.labels, like_old, self.temperature),
                "features": selected_distillation(features, before, like_old),
                "prototypes": self.prototypes * cross_entropy(head(old[drawn]) / self.temperature, drawn),
            }

        return Work([adapters, head], losses)

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Fold the adapters into the network, then measure the prototypes of the new classes."""
        if engine.teacher is not None:
            _adapters(engine).fold()
        remember_prototypes(engine, data)


# --- losses ---


def likeness(features: Tensor, prototypes: Tensor) -> Tensor:
    """How much samples are like an old class: the largest cosine of a feature to a prototype, 0 at least, (N,).

    Features may be negative here, and so could be their cosines, which would reward a feature for moving. No gradient
    passes: these are weights.

    Args:
        features: (N, dim).
        prototypes: (K, dim).

    """
    cosines = normalize(features.detach()) @ normalize(prototypes).T
    return cosines.max(1).values.clamp(0, 1)


def selected_cross_entropy(logits: Tensor, labels: Tensor, like_old: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy of logits (N, K) at a temperature, a sample weighted the less the more it is like old ones."""
    return ((1 - like_old) * cross_entropy(logits / temperature, labels, reduction="none")).mean()


def selected_distillation(features: Tensor, before: Tensor, like_old: Tensor) -> Tensor:
    """Sum over the batch of how far features (N, dim) moved, times how much a sample is like old ones."""
    return (like_old * torch.linalg.vector_norm(features - before.detach(), dim=1)).sum()


# --- adapters ---


class Adapters(nn.Module):
    """A 1x1 convolution beside each of some convolutions, zero at first: what it gives is added to theirs.

    Args:
        beside: the convolutions; they are not part of this module.

    """

    def __init__(self, beside: Iterable[nn.Conv2d]) -> None:
        super().__init__()
        self._beside = list(beside)
        self._handles: list[RemovableHandle] = []
        self.branches = nn.ModuleList(_branch(convolution) for convolution in self._beside)

    def attach(self) -> None:
        """From now on the convolutions give the sum; a second time changes nothing."""
        self.detach()
        for convolution, branch in zip(self._beside, self.branches, strict=True):
            self._handles.append(convolution.register_forward_hook(_adding(branch)))

    def detach(self) -> None:
        """The convolutions are alone again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @torch.no_grad()
    def fold(self) -> None:
        """Add the kernels to those of the convolutions, which then give the sum by themselves; these are zero again."""
        self.detach()
        for convolution, branch in zip(self._beside, self.branches, strict=True):
            assert isinstance(branch, nn.Conv2d)
            tap = _tap(convolution)
            assert tap is not None
            convolution.weight[:, :, tap[0], tap[1]] += branch.weight[:, :, 0, 0]
            branch.weight.zero_()


def _adapters(engine: Engine) -> Adapters:
    return engine.module(ADAPTERS, lambda: Adapters(_convolutions(engine.learning())))


def _convolutions(modules: Iterable[nn.Module]) -> list[nn.Conv2d]:
    """Those that a 1x1 convolution can be folded into."""
    found = dict.fromkeys(m for module in modules for m in module.modules() if isinstance(m, nn.Conv2d))
    return [convolution for convolution in found if _tap(convolution) is not None]


def _tap(convolution: nn.Conv2d) -> tuple[int, int] | None:
    """The place of a kernel that meets the pixels that a 1x1 convolution of the same stride meets, if there is one."""
    if isinstance(convolution.padding, str) or convolution.padding_mode != "zeros":
        return None
    places = []
    for size, padding, dilation in zip(convolution.kernel_size, convolution.padding, convolution.dilation, strict=True):
        place, rest = divmod(padding, dilation)
        # Only with padding on both sides alike is the number of pixels the same as well.
        if rest or size != 2 * place + 1:
            return None
        places.append(place)
    return places[0], places[1]


def _branch(convolution: nn.Conv2d) -> nn.Conv2d:
    channels = convolution.in_channels, convolution.out_channels
    stride = convolution.stride[0], convolution.stride[1]
    branch = nn.Conv2d(*channels, 1, stride=stride, groups=convolution.groups, bias=False)
    nn.init.zeros_(branch.weight)
    return branch


def _adding(branch: nn.Module) -> Any:
    def add(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output + branch(inputs[0])

    return add
