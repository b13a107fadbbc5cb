"""A data set, a backbone and a method of your own, run together: python examples/extend.py [FOLDER]."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from remix.data import Splits, TaskStream, dataset, load
from remix.inversion import random_labels
from remix.learning import AccuracyMatrix, Learner, Method, Sgd, Stage
from remix.methods import create_method, first_task, method
from remix.networks import Backbone, Block, create_backbone, register_backbone
from remix.statistics import measure_classes


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


@method("feature-replay")
@dataclass(frozen=True)
class FeatureReplay(Method):
    """Freeze the backbone after the first task; train the head on new features and on draws of the old ones."""

    first: Sgd = Sgd(15, 0.1, (10,))
    later: Sgd = Sgd(15, 0.1, (10,))

    def stages(self, learner):
        def terms(batch):
            old = random_labels(learner.memory.gaussians.labels, len(batch.labels), learner.generator)
            drawn = learner.memory.gaussians.sample(old, learner.generator)
            logits = learner.student.head(torch.cat([learner.pooled(batch.images), drawn]))
            return {"cross-entropy": cross_entropy(logits, torch.cat([batch.labels, old]))}

        later = Stage("head", [learner.student.head], self.later, terms)
        return first_task(learner, self.first) if learner.teacher is None else [later]

    def remember(self, learner, data):
        new, old = measure_classes(learner.backbone, learner.images(data)), learner.memory.gaussians
        learner.memory.gaussians = new if old is None else old.replace(new)


if __name__ == "__main__":  # not when `remix` imports it
    torch.manual_seed(0)  # of the backbone's first weights
    stream, matrix = TaskStream(load("mirrored-digits"), tasks=5), AccuracyMatrix()
    learner = Learner(create_backbone("two-convolutions"), create_method("feature-replay"), stream.normalisation)
    for task in stream:
        learner.learn(task)
        matrix.add_row(*learner.evaluate_tasks([stream.test(i) for i in range(task.index + 1)]))
    file = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "matrix.csv"
    matrix.write(file)
    print(f"last accuracy {matrix.accuracy(average='macro'):.1f} %; all accuracies are in {file}")
