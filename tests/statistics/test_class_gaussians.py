from __future__ import annotations

import warnings

import pytest
import torch

from remix.statistics import ClassGaussians, ClassMeter, class_gaussians, feature_point, measure_classes, run_meters


def example(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    features = torch.randn(60, 4, generator=generator) * torch.tensor([1.0, 2.0, 0.5, 3.0]) + 5
    return features, torch.tensor([2, 0, 7] * 20)


def test_mean_and_population_std_per_class(generator):
    features, labels = example(generator)
    gaussians = class_gaussians(features, labels)
    assert gaussians.labels == (0, 2, 7)
    assert gaussians.counts == (20, 20, 20)
    for place, label in enumerate(gaussians.labels):
        own = features[labels == label]
        assert torch.allclose(gaussians.mean[place], own.mean(0), atol=1e-6)
        assert torch.allclose(gaussians.std[place], own.std(0, correction=0), atol=1e-6)


def test_streaming_over_batches_gives_the_same(network, images):
    labels = torch.arange(24) % 4
    network.eval()
    with torch.no_grad():
        at_once = class_gaussians(network.pooled(images), labels)
    streamed = measure_classes(network, list(zip(images.split(5), labels.split(5), strict=True)))
    assert streamed.labels == at_once.labels
    assert torch.allclose(streamed.mean, at_once.mean, atol=1e-5)
    assert torch.allclose(streamed.std, at_once.std, atol=1e-5)


def test_a_meter_can_keep_the_features_by_class(network, images):
    labels = torch.arange(24) % 3
    meter = ClassMeter(feature_point(network), network.pool, keep_features=True)
    run_meters(network, [(images[:10], labels[:10]), (images[10:], labels[10:])], [meter])
    with torch.no_grad():
        expected = network.eval().pooled(images)
    for label, features in meter.features().items():
        assert torch.allclose(features, expected[labels == label], atol=1e-5)


def test_a_class_with_one_sample_gets_the_mean_variance_of_the_others(generator):
    features, labels = example(generator)
    features, labels = torch.cat([features, features[:1] + 9]), torch.cat([labels, torch.tensor([5])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gaussians = class_gaussians(features, labels)
    place = gaussians.labels.index(5)
    others = [i for i in range(4) if i != place]
    assert torch.allclose(gaussians.std[place], gaussians.std[others].square().mean(0).sqrt())
    assert torch.equal(gaussians.mean[place], features[-1])


def test_only_single_samples_spread_like_the_class_means(generator):
    features = torch.randn(3, 4, generator=generator)
    gaussians = class_gaussians(features, torch.arange(3))
    assert torch.allclose(gaussians.std, features.std(0, correction=0).expand(3, 4), atol=1e-6)
    alone = class_gaussians(features[:1], torch.tensor([0]))
    assert torch.equal(alone.sample([0, 0]), features[:1].expand(2, 4))


def test_samples_follow_the_class_and_the_generator(generator):
    gaussians = class_gaussians(*example(generator))
    labels = torch.tensor([7] * 20000 + [0] * 20000)
    draws = gaussians.sample(labels, generator)
    for label, part in ((7, draws[:20000]), (0, draws[20000:])):
        place = gaussians.labels.index(label)
        assert torch.allclose(part.mean(0), gaussians.mean[place], atol=0.1)
        assert torch.allclose(part.std(0), gaussians.std[place], rtol=0.05)
    first, second = (gaussians.sample([2, 7], torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


def test_replacing_takes_the_newer_of_two_and_adds_the_rest(generator):
    old = class_gaussians(*example(generator))
    new = class_gaussians(torch.randn(8, 4, generator=generator), torch.tensor([2, 3] * 4))
    both = old.replace(new)
    assert both.labels == (0, 2, 3, 7)
    assert both.counts == (20, 4, 4, 20)
    assert torch.equal(both.mean[1], new.mean[0])
    assert torch.equal(both.std[3], old.std[2])


def test_bad_input_is_told(generator):
    gaussians = class_gaussians(*example(generator))
    with pytest.raises(ValueError, match="no class 4; known are 0, 2, 7"):
        gaussians.sample([0, 4])
    with pytest.raises(ValueError, match="length 4 here and 3"):
        gaussians.replace(class_gaussians(torch.randn(2, 3), torch.tensor([0, 0])))
    with pytest.raises(ValueError, match=r"floating point \(N, D\), got \(2, 3, 4, 4\)"):
        class_gaussians(torch.randn(2, 3, 4, 4), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="finite"):
        class_gaussians(torch.tensor([[torch.nan]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="2 integers"):
        class_gaussians(torch.randn(2, 3), torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="negative"):
        class_gaussians(torch.randn(2, 3), torch.tensor([0, -1]))
    with pytest.raises(ValueError, match="ascending"):
        ClassGaussians((1, 0), (1, 1), torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"mean must be a floating-point tensor \(1, D\), got \(1, 3, 8, 8\)"):
        ClassGaussians((0,), (1,), torch.zeros(1, 3, 8, 8), torch.ones(1, 3))


def test_batches_without_labels_are_told(network, images):
    with pytest.raises(ValueError, match="need labels"):
        measure_classes(network, [images])
