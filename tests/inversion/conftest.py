from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from remix.inversion import Knowledge
from remix.inversion.terms import BatchAverage
from remix.inversion.watch import Watch
from remix.networks import Classifier, LinearHead, create_backbone
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    LayerMeter,
    LayerStatistics,
    batchnorm_points,
    block_input_points,
    feature_point,
    run_meters,
)


@contextmanager
def one_thread():
    """These networks are far too small to share among threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def tiny_classifier(width: int = 3, dtype: torch.dtype = torch.float64) -> Classifier:
    """A convnet8 with random weights whose BatchNorm layers have seen noise."""
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("convnet8", width=width, generator=generator)
    head = LinearHead(backbone.feature_dim, [4], generator=generator)
    nn.init.normal_(head.classifier(0).weight, generator=generator)
    classifier = Classifier(backbone, head).to(dtype)
    for _ in range(3):
        backbone(_images(64, dtype, generator))
    return classifier.eval()


def _images(count: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    noise = torch.randn(count, 1, 8, 8, generator=generator, dtype=dtype)
    return noise.cumsum(-1) / 4


def measure(
    classifier: Classifier, images: Tensor, labels: Tensor
) -> tuple[dict[str, LayerStatistics], ClassGaussians]:
    backbone = classifier.backbone
    inside = LayerMeter(batchnorm_points(backbone), "channels", ("laplace", "dense"))
    inputs = LayerMeter(list(block_input_points(backbone).values()), "channels", ())
    classes = ClassMeter(feature_point(backbone), backbone.pool)
    batches = list(zip(images.split(200), labels.split(200), strict=True))
    run_meters(backbone, batches, [inside, inputs, classes])
    return {**inside.statistics(), **inputs.statistics()}, classes.gaussians()


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    """In float64; not to be changed."""
    return tiny_classifier()


@pytest.fixture(scope="session")
def measured(classifier) -> tuple[dict[str, LayerStatistics], ClassGaussians]:
    generator = torch.Generator().manual_seed(1)
    images = _images(200, torch.float64, generator)
    return measure(classifier, images, torch.arange(200) % 4)


@pytest.fixture(scope="session")
def layers(measured) -> dict[str, LayerStatistics]:
    return measured[0]


@pytest.fixture(scope="session")
def gaussians(measured) -> ClassGaussians:
    return measured[1]


@pytest.fixture(scope="session")
def knowledge(classifier, layers) -> Knowledge:
    return Knowledge(classifier.backbone, layers, classifier.head)


@pytest.fixture
def part(classifier):
    """A network and the part of it that runs."""
    return classifier.backbone, classifier.backbone.pooled


@pytest.fixture
def evaluate(part):
    """The value of a loss, what the network gave, and the activations of the layers that the loss looks at."""

    def evaluate(loss, images):
        points = [average.layer.point for average in loss.averages if hasattr(average, "layer")]
        with Watch(*part, loss.averages, points).run(images, images, slice(0, len(images))) as seen:
            measured = [BatchAverage(average, average(seen)) for average in loss.averages]
            return loss.value(measured, len(images)), seen.output, dict(seen.activations)

    return evaluate


@pytest.fixture
def images(generator) -> Tensor:
    return _images(10, torch.float64, generator)


# --- digits ---


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    return (images - 0.305) / 0.376, torch.tensor(data.target)


def train_on_digits(digits: tuple[Tensor, Tensor], width: int, seed: int, epochs: int = 6) -> Classifier:
    images, labels = digits
    generator = torch.Generator().manual_seed(seed)
    backbone = create_backbone("convnet8", width=width, generator=generator)
    classifier = Classifier(backbone, LinearHead(backbone.feature_dim, [10], generator=generator))
    optimiser = torch.optim.SGD(classifier.parameters(), 0.1, 0.9, weight_decay=5e-4)
    steps = len(labels) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=epochs * steps)
    for _ in range(epochs):
        order = torch.randperm(len(labels), generator=generator)
        for rows in order[: steps * 64].split(64):
            optimiser.zero_grad()
            cross_entropy(classifier(images[rows]), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    return classifier.eval()


@pytest.fixture(scope="session")
def digit_classifier(digits) -> Classifier:
    with one_thread():
        return train_on_digits(digits, width=8, seed=0)


@pytest.fixture(scope="session")
def verifier(digits) -> Classifier:
    """Another width, another seed: it shares nothing with the network that is inverted."""
    with one_thread():
        return train_on_digits(digits, width=12, seed=1)


@pytest.fixture(scope="session")
def learned(digit_classifier, digits) -> tuple[Knowledge, ClassGaussians]:
    """What is known of the digits once the network has seen them."""
    with one_thread():
        layers, gaussians = measure(digit_classifier, *digits)
    return Knowledge(digit_classifier.backbone, layers, digit_classifier.head), gaussians
