"""What the benchmarks of inversion invert: a ResNet-32 whose statistics have seen noise. Only time matters here."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remix.inversion import (
    FeatureMatch,
    Knowledge,
    Optimisation,
    PriorSettings,
    Schedule,
    StatisticsKl,
    Targets,
    TensorVariable,
    Term,
)
from remix.networks import Backbone, create_backbone
from remix.statistics import LayerMeter, LayerStatistics, batchnorm_points, block_input_points, run_meters


def clock() -> float:
    """Seconds; with one thread those of this process alone, whatever else the machine does."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


@dataclass(frozen=True)
class Problem:
    """A frozen network, its statistics, images to start from and features to reach."""

    knowledge: Knowledge
    images: Tensor
    targets: Targets
    kind: str

    def resized(self, count: int) -> Problem:
        """The same with ``count`` images."""
        return _with_images(self.knowledge, count, self.kind)

    def channels_last(self) -> Problem:
        """The same with weights and images in that memory format."""
        network = deepcopy(self.knowledge.backbone).to(memory_format=torch.channels_last)
        images = self.images.to(memory_format=torch.channels_last)
        return Problem(Knowledge(network, self.knowledge.layers), images, self.targets, self.kind)

    @property
    def prior_layers(self) -> list[LayerStatistics]:
        """The BatchNorm inputs."""
        return self.knowledge.prior_layers(self.prior)

    @property
    def prior(self) -> PriorSettings:
        return PriorSettings(self.kind, "nll", 0.5)

    @property
    def backbone(self) -> Backbone:
        return self.knowledge.backbone

    @property
    def features(self) -> Tensor:
        assert self.targets.features is not None
        return self.targets.features

    def terms(self) -> list[Term]:
        """Of the refinement: feature match, 31 statistics terms, 31 Laplace terms."""
        return [
            Term("features", 1.0, FeatureMatch(self.features)),
            Term("statistics", 0.25, StatisticsKl(self.knowledge.moments)),
            *self.knowledge.prior_terms(self.prior),
        ]

    def refinement(self, schedule: Schedule, micro_batch: int | None = None) -> Optimisation:
        """The last phase of an inversion."""
        network, images = self.backbone, TensorVariable(self.images)
        return Optimisation(self.terms(), network, network.pooled, images, schedule, micro_batch=micro_batch)


def make_problem(count: int, kind: str = "laplace") -> Problem:
    """ResNet-32 of width 16 with statistics of this kind, and ``count`` images of 32 x 32 pixels."""
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("resnet32", generator=generator)
    assert isinstance(backbone, nn.Module)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):  # residual branches start at zero: give them something to do
            nn.init.uniform_(module.weight, 0.3, 0.7, generator=generator)
    for _ in range(4):
        backbone(torch.randn(32, 3, 32, 32, generator=generator))
    backbone.eval()
    inside = LayerMeter(batchnorm_points(backbone), "channels", (kind,))
    inputs = LayerMeter(list(block_input_points(backbone).values()), "channels", ())
    run_meters(backbone, [torch.randn(64, 3, 32, 32, generator=generator)], [inside, inputs])
    return _with_images(Knowledge(backbone, {**inside.statistics(), **inputs.statistics()}), count, kind)


def _with_images(knowledge: Knowledge, count: int, kind: str) -> Problem:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 3, 32, 32, generator=generator)
    features = torch.randn(count, knowledge.backbone.feature_dim, generator=generator)
    return Problem(knowledge, images, Targets(torch.zeros(count, dtype=torch.int64), features), kind)
