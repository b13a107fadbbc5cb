from dataclasses import replace

import pytest
import torch

from remix.inversion import Augmentation, Knowledge, PriorSettings, PyramidSettings, Scale, Targets, invert_pyramid
from remix.statistics import Hooks, batchnorm_points, batchnorm_statistics, measure_layers

SHORT = PyramidSettings(
    scales=(Scale(4, 4, 0.05), Scale(8, 4, 0.02)),
    polish=Scale(8, 3, 0.01),
    augmentation=Augmentation(jitter=1, flip=0.5, rotation=10, shift=0.05, scale=0.05),
    mean=(0.5,),
    std=(0.25,),
    blur_every=2,
    prior=PriorSettings("laplace", "typical", 1.0),
)
TARGETS = Targets(torch.arange(6) % 4)


def test_published_settings_are_the_defaults():
    settings = PyramidSettings()
    assert settings.scales == (Scale(112, 1000, 0.05), Scale(224, 2000, 0.02))
    assert settings.polish == Scale(224, 400, 0.005)
    assert (settings.labels, settings.statistics, settings.prior.weight, settings.variation) == (1, 1, 4 * 5, 0.1)
    assert (settings.polish_labels, settings.polish_variation, settings.gradient_limit) == (20, 0.05, 1)


@pytest.mark.parametrize("kind", ["none", "laplace-paper", "laplace-dct"])
def test_of_whole_maps_the_objective_is_the_published_one(classifier, kind):
    """CE + BatchNorm's statistics + those of every element of the maps + 5 times the sum of NLL / D + 0.1 TV."""
    backbone, head = classifier.backbone, classifier.head
    photographs = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64).cumsum(-1)
    points = batchnorm_points(backbone)[1:4]
    maps = measure_layers(backbone, [photographs], points, "map", ("laplace", "laplace-paper"), transform="dct")
    still = {"augmentation": Augmentation(), "mean": (0.5,), "std": (0.25,), "scales": (Scale(8, 1, 0.05),)}
    settings = PyramidSettings(**still, polish=None, prior=PriorSettings(kind, "nll", 5.0 * len(maps)))
    knowledge = Knowledge(backbone, maps, head)
    found = invert_pyramid(knowledge, TARGETS, torch.Generator().manual_seed(0), settings).history["8 pixels"]["loss"]

    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    channels = batchnorm_statistics(backbone).values()
    with torch.no_grad(), Hooks(backbone, [layer.point for layer in channels]) as seen:
        logits = head(backbone.pooled((x - 0.5) / 0.25))
    loss = torch.nn.functional.cross_entropy(logits, TARGETS.labels)
    loss += 0.1 * (x.diff(dim=2).abs().mean() + x.diff(dim=3).abs().mean())
    for layer in channels:
        y = seen[layer.point]
        loss += (y.mean((0, 2, 3)) - layer.mean).square().mean()
        loss += (y.var((0, 2, 3), correction=0) - layer.variance).square().mean()
    for layer in maps.values():
        y = seen[layer.point].flatten(1)
        loss += (y.mean(0) - layer.mean).square().mean() + (y.var(0) - layer.variance).square().mean()
        if kind != "none":
            loss -= 5 * layer.prior("laplace" if kind == "laplace-dct" else kind).log_prob(y).mean() / layer.dim
    assert found == [pytest.approx(float(loss), rel=1e-6)]


def test_statistics_may_be_compared_by_their_divergence(classifier):
    backbone = classifier.backbone
    still = {"augmentation": Augmentation(), "mean": (0.5,), "std": (0.25,), "scales": (Scale(8, 1, 0.05),)}
    settings = PyramidSettings(
        **still, polish=None, prior=PriorSettings("none"), labels=0, variation=0, statistics_form="kl"
    )
    knowledge = Knowledge(backbone, {}, classifier.head)
    found = invert_pyramid(knowledge, TARGETS, torch.Generator().manual_seed(0), settings).history["8 pixels"]["loss"]
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    channels = batchnorm_statistics(backbone).values()
    with torch.no_grad(), Hooks(backbone, [layer.point for layer in channels]) as seen:
        backbone.pooled((x - 0.5) / 0.25)
    loss = 0.0
    for layer in channels:
        mean, variance = seen[layer.point].mean((0, 2, 3)), seen[layer.point].var((0, 2, 3), correction=0)
        there = torch.distributions.Normal(layer.mean, layer.variance.sqrt())
        here = torch.distributions.Normal(mean, variance.sqrt())
        loss += float(torch.distributions.kl_divergence(here, there).mean())
    assert found == [pytest.approx(loss, rel=1e-4)]


def test_small_then_large_then_polished(knowledge):
    dream = invert_pyramid(knowledge, TARGETS, torch.Generator().manual_seed(0), SHORT)
    assert list(dream.history) == ["4 pixels", "8 pixels", "polish"]
    assert dream.images.shape == (6, 1, 8, 8)
    pixels = dream.images * 0.25 + 0.5
    assert pixels.min() >= -1e-12
    assert pixels.max() <= 1 + 1e-12


def test_interrupted_at_a_low_resolution_it_shows_enlarged_images_and_can_go_on(knowledge):
    whole = invert_pyramid(knowledge, TARGETS, torch.Generator().manual_seed(0), SHORT)
    steps = []

    def interrupt(progress):
        steps.append(progress)
        if len(steps) == 3:
            raise KeyboardInterrupt

    half = invert_pyramid(knowledge, TARGETS, torch.Generator().manual_seed(0), SHORT, progress=interrupt)
    assert half.images.shape == (6, 1, 8, 8)
    assert not half.finished
    rest = invert_pyramid(knowledge, TARGETS, torch.Generator(), SHORT, resume=half.checkpoint)
    assert torch.equal(rest.images, whole.images)


def test_a_new_chunk_starts_from_noise(knowledge):
    settings = replace(SHORT, scales=(Scale(8, 3, 0.05),), polish=None, batch=3)
    dream = invert_pyramid(knowledge, TARGETS, torch.Generator().manual_seed(0), settings)
    first, second = dream.history["chunk 1/2: 8 pixels"]["loss"], dream.history["chunk 2/2: 8 pixels"]["loss"]
    assert second[0] > first[-1]


def test_a_grey_network_refuses_the_normalisation_of_colour_images(knowledge):
    with pytest.raises(ValueError, match="mean has 3 channels, but the network takes images with 1"):
        invert_pyramid(knowledge, TARGETS, torch.Generator(), PyramidSettings())


def test_no_scales_are_refused():
    with pytest.raises(ValueError, match="at least one scale"):
        PyramidSettings(scales=())
