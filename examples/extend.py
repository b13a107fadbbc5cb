"""A data set, a backbone, a head, a prior and a method of your own: python examples/extend.py [FOLDER]."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn
from torch.distributions import LowRankMultivariateNormal
from torch.nn.functional import cross_entropy

from remix.data import Splits, TaskStream, dataset, load
from remix.inversion import random_labels
from remix.learning import AccuracyMatrix, Engine, Method, Stage, Training, Work
from remix.methods import create_method, first_task, method
from remix.networks import (
    Backbone,
    Block,
    Classifier,
    LinearHead,
    create_backbone,
    create_head,
    register_backbone,
    register_head,
)
from remix.statistics import Covariance, measure_classes, mixture, register_covariance


@dataset("mirrored-digits")
def mirrored_digits() -> Splits:
    """Handwritten digits seen in a mirror."""
    digits = load("digits")
    train, test = (replace(part, images=part.images.flip(-1)) for part in (digits.train, digits.test))
    return Splits(train, test, digits.normalisation, "mirrored-digits")


@register_backbone("two-convolutions", input_shape=(1, 8, 8))
class TwoConvolutions(Backbone):
    def __init__(self, input_shape, width=32):
        super().__init__(input_shape, feature_dim=width)
        sizes = ((input_shape[0], width), (width, width))
        self.steps = nn.ModuleList(nn.Sequential(nn.Conv2d(a, b, 3), nn.BatchNorm2d(b), nn.ReLU()) for a, b in sizes)

    def blocks(self):
        return [Block(f"steps.{i}", step) for i, step in enumerate(self.steps)]


@register_head("tempered")
class TemperedHead(LinearHead):
    """Linear, with logits that never leave -20..20."""

    def forward(self, features):
        return 20 * torch.tanh(super().forward(features) / 20)


@register_covariance
@dataclass(frozen=True, eq=False)
class LowRank(Covariance):
    """A few directions and a variance per coordinate: Sigma = F F' + diag(d)."""

    kind, title, rank = "low-rank", "low-rank covariance", 4
    directions: torch.Tensor
    rest: torch.Tensor

    @classmethod
    def from_rows(cls, dim, layout):
        return False  # the covariance is enough

    @classmethod
    def fit(cls, measured):
        values, vectors = torch.linalg.eigh(measured.covariance)
        directions = vectors[:, -cls.rank :] * values[-cls.rank :].clamp_min(0).sqrt()
        rest = (measured.variance - directions.square().sum(1)).clamp_min(1e-3 * measured.variance)
        return cls(directions.to(measured.dtype), rest.to(measured.dtype))

    def distribution(self, layer):
        return LowRankMultivariateNormal(layer.mean, self.directions, self.rest, validate_args=False)

    def tensors(self):
        return {"directions": self.directions, "rest": self.rest}

    @classmethod
    def from_tensors(cls, tensors, described):
        return cls(tensors.pop("directions"), tensors.pop("rest"))

    @classmethod
    def merge(cls, parts):
        mixed = mixture([(weight, layer.mean, layer.prior(cls.kind).covariance_matrix) for weight, layer in parts])
        values, vectors = torch.linalg.eigh(mixed.covariance())
        directions = vectors[:, -cls.rank :] * values[-cls.rank :].clamp_min(0).sqrt()
        rest = (mixed.variance() - directions.square().sum(1)).clamp_min(1e-3 * mixed.variance())
        like = parts[0][1].mean
        return cls(directions.to(like), rest.to(like))

    def rescale(self, mean, variance):
        ratio = variance / (self.directions.square().sum(1) + self.rest)
        return LowRank(ratio.sqrt()[:, None] * self.directions, ratio * self.rest)

    def to(self, device):
        return LowRank(self.directions.to(device), self.rest.to(device))

    def check(self, dim):
        if len(self.directions) != dim or self.rest.shape != (dim,):
            raise ValueError(f"be of {dim} coordinates")


@method("feature-replay")
@dataclass(frozen=True)
class FeatureReplay(Method):
    """Freeze the backbone after the first task; train the head on new features and on draws of the old ones."""

    first: Training = Training(15, 0.1, (10,))
    later: Training = Training(15, 0.1, (10,))

    def stages(self, step):
        return first_task(self.first) if step == "first" else [Stage("head", self.later, self.head)]

    def head(self, engine):
        gaussians, head = engine.memory.gaussians, engine.student.head

        def losses(batch):
            old = random_labels(gaussians.labels, len(batch.labels), engine.generator)
            logits = head(torch.cat([engine.pooled(batch.real), gaussians.sample(old, engine.generator)]))
            return {"cross-entropy": cross_entropy(logits, torch.cat([batch.labels, old]))}

        return Work([head], losses)

    def remember(self, engine, data):
        new, old = measure_classes(engine.backbone, engine.images(data)), engine.memory.gaussians
        engine.memory.gaussians = new if old is None else old.replace(new)


if __name__ == "__main__":  # not when `remix` imports it
    torch.manual_seed(0)  # of the backbone's first weights
    stream, matrix = TaskStream(load("mirrored-digits"), tasks=5), AccuracyMatrix()
    backbone = create_backbone("two-convolutions")
    student = Classifier(backbone, create_head("tempered", backbone.feature_dim))
    engine = Engine(student, create_method("feature-replay"), stream.normalisation)
    for task in stream:
        engine.learn(task)
        matrix.add_row(*engine.evaluate_tasks([stream.test(i) for i in range(task.index + 1)]))
    file = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "matrix.csv"
    matrix.write(file)
    print(f"last accuracy {matrix.accuracy(average='macro'):.1f} %; all accuracies are in {file}")
