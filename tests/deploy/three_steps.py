"""Models of three steps with exact heads, and whether they are what their images make them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

import remix
from remix.learning import Model
from remix.methods import create_method
from remix.networks import ExactLinearHead
from remix.statistics import ClassSums
from tests.deploy.small import NAMES, NETWORK, digits, weights_of

HEADS = ("ncm", "lda", "fecam", "ranpac")
STEPS = (([0, 1, 2], 10), ([3], 12), ([1, 4], 15))
"""Digits, and images of each."""


@cache
def steps(trained, method, **changes) -> list[Model]:
    """The models after each of three steps: three digits, one, and further images of one with another."""
    found, models = remix.Learner(**NETWORK, method=method, weights=trained, **changes), []
    for classes, each in STEPS:
        found.learn(digits(classes, each), classes=NAMES, extend=True)
        models.append(found.model)
    return models


def reloaded(model: Model, path) -> Model:
    remix.Learner.of(model).save(path)
    return remix.load(path).model


def sums_of(model: Model) -> ClassSums:
    return model.memory.get(ClassSums.name)


def assert_same_sums(one: Model, other: Model, tolerance: float = 0.0) -> None:
    mine, theirs = sums_of(one), sums_of(other)
    assert (mine.labels, mine.counts, mine.method) == (theirs.labels, theirs.counts, theirs.method)
    pairs = [(mine.mean, theirs.mean)] + [(t, theirs.scatter.tensors[name]) for name, t in mine.scatter.tensors.items()]
    for tensor, expected in pairs:
        assert float((tensor - expected).abs().max()) <= tolerance * float(expected.abs().max())


def assert_same_head(one: Model, other: Model, tolerance: float = 1e-6) -> None:
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.keys() == theirs.keys()
    assert one.classifier.head.task_sizes == other.classifier.head.task_sizes
    for name, tensor in mine.items():
        assert float((tensor - theirs[name]).abs().max()) <= tolerance * max(float(theirs[name].abs().max()), 1e-30)


def summed(model: Model, classes: list[int], each: int, labels: dict[int, int]) -> ClassSums:
    """The slow twin: sums of digits under other labels, of the features of a model."""
    data = remix.Learner.of(model).intake(digits(classes, each), NAMES).train
    images, which = data.batch(range(len(data)))
    digit = [NAMES.index(data.classes[int(one)]) for one in which]
    with torch.no_grad():
        pooled = model.classifier.pooled(model.preprocessing.normalisation.normalise(images).float())
    rows, chosen = model.classifier.head.map(pooled).double(), sums_of(model)
    return ClassSums.of(rows, torch.tensor([labels[one] for one in digit]), chosen.scatter.kind, chosen.own)


def assert_solved_from(model: Model, parts: list[ClassSums]) -> None:
    """Sums and head are those of these parts, with the choices of the model."""
    expected, found = parts[0], sums_of(model)
    for part in parts[1:]:
        expected = expected.merge(part)
    expected = replace(expected, method=found.method, strength=found.strength, scale=found.scale)
    assert (found.labels, found.counts, found.mixed) == (expected.labels, expected.counts, 0)
    assert torch.allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-7)
    for name, tensor in expected.scatter.tensors.items():
        assert torch.allclose(found.scatter.tensors[name], tensor, rtol=1e-6, atol=1e-6 * float(tensor.abs().max()))
    head = model.classifier.head
    room = ExactLinearHead(head.map, head.task_sizes)
    solved = create_method(found.method).solved(expected, head.map, room, expected.labels).head.state_dict()
    for name, tensor in head.state_dict().items():
        other = solved[name] * (found.scale if name == "scale" else 1)
        assert float((tensor - other).abs().max()) <= 1e-5 * float(other.abs().max())  # features in single precision
