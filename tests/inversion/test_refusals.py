"""Every kind of bad input: an error before work starts that says what to do, or a documented sane result."""

from dataclasses import replace

import pytest
import torch

from remix.inversion import (
    Augmentation,
    InversionStoppedError,
    Knowledge,
    LayerwiseSettings,
    PixelSettings,
    PriorSettings,
    Schedule,
    Targets,
    feature_targets,
    invert_layerwise,
    invert_pixels,
)
from remix.networks import LinearHead, create_backbone
from remix.statistics import batchnorm_points, measure_layers

LAYERWISE = LayerwiseSettings(block=Schedule(2, 0.3), refine=Schedule(2, 0.1), prior=PriorSettings("none"))
PIXELS = PixelSettings(schedule=Schedule(2, 0.1), augmentation=Augmentation(jitter=1))


@pytest.fixture
def targets(gaussians):
    return feature_targets(torch.arange(6) % 4, gaussians, None, torch.Generator().manual_seed(4))


def test_unknown_class(knowledge, gaussians):
    with pytest.raises(ValueError, match=r"there is no class 9; known are 0, 1, 2, 3"):
        feature_targets(torch.tensor([9]), gaussians)
    with pytest.raises(ValueError, match=r"there is no class 4: the head has classes 0\.\.3"):
        invert_pixels(knowledge, Targets(torch.tensor([0, 4])), torch.Generator(), PIXELS)


def test_unknown_layer(classifier, layers):
    with pytest.raises(ValueError, match=r"'convolutions\.1\.bn:input'; the closest are: convolutions\.1\.bn:input:ch"):
        Knowledge(classifier.backbone, layers, prior_layers=["convolutions.1.bn:input"])


def test_unknown_prior_or_form():
    with pytest.raises(ValueError, match="unknown prior 'full'"):
        PriorSettings("full")
    with pytest.raises(ValueError, match="unknown form"):
        PriorSettings("laplace", "mse")


def test_statistics_of_another_network(layers, targets, gaussians):
    wider = create_backbone("convnet8", width=5).double()
    with pytest.raises(ValueError, match="statistics of another network"):
        Knowledge(wider, layers)
    resnet = create_backbone("resnet20", width=4, input_shape=(1, 8, 8)).double()
    with pytest.raises(ValueError, match="statistics of another network"):
        Knowledge(resnet, layers)
    with pytest.raises(ValueError, match="target features have length 12, those of this network 20"):
        invert_layerwise(Knowledge(wider), targets, torch.Generator(), LAYERWISE)


def test_a_prior_without_statistics(classifier, targets):
    known = Knowledge(classifier.backbone, classify=classifier.head)
    settings = replace(PIXELS, prior=PriorSettings("laplace"))
    with pytest.raises(ValueError, match="the prior 'laplace' needs measured statistics"):
        invert_pixels(known, targets, torch.Generator(), settings)
    diagonal = replace(PIXELS, prior=PriorSettings("diagonal"))  # BatchNorm layers know enough for this one
    assert invert_pixels(known, targets, torch.Generator().manual_seed(0), diagonal).finished


def test_a_covariance_that_was_not_measured(classifier, images, targets):
    points = batchnorm_points(classifier.backbone)
    only = measure_layers(classifier.backbone, [images], points, kinds=("laplace",))
    settings = replace(PIXELS, prior=PriorSettings("dense"))
    with pytest.raises(ValueError, match="there is no 'dense' prior"):
        invert_pixels(Knowledge(classifier.backbone, only, classifier.head), targets, torch.Generator(), settings)


def test_block_inputs_that_were_not_measured(classifier, layers, targets):
    without = {key: layer for key, layer in layers.items() if not key.startswith("convolutions.3:input")}
    with pytest.raises(ValueError, match=r"input of block 'convolutions\.3' was not measured"):
        invert_layerwise(Knowledge(classifier.backbone, without), targets, torch.Generator(), LAYERWISE)


def test_targets_that_lack_what_is_asked_for(knowledge, classifier):
    labels = Targets(torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"feature_targets\(\.\.\.\)"):
        invert_layerwise(knowledge, labels, torch.Generator(), LAYERWISE)
    with pytest.raises(ValueError, match=r"targets need features \(N, 12\), got None"):
        invert_pixels(knowledge, labels, torch.Generator(), replace(PIXELS, features=1.0))
    with pytest.raises(ValueError, match="give the head as classify"):
        invert_pixels(Knowledge(classifier.backbone), labels, torch.Generator(), PIXELS)


def test_a_network_about_which_nothing_is_known():
    backbone = create_backbone("convnet8", width=2)
    for block in backbone.blocks():
        block.module.bn = torch.nn.Identity()
    with pytest.raises(ValueError, match="no BatchNorm layers with running statistics and no statistics were given"):
        _ = Knowledge(backbone).moments


def test_a_channel_without_variance_has_a_sane_result(targets):
    """A dead channel: BatchNorm's running variance is 0, every activation is the same."""
    backbone = create_backbone("convnet8", width=3, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        backbone.convolutions[1].conv.weight[2] = 0
    images = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for _ in range(30):
        backbone(images)
    backbone.convolutions[1].bn.running_var[2] = 0
    backbone.eval()
    layers = measure_layers(backbone, [images], batchnorm_points(backbone), kinds=("laplace", "dense"))
    known = Knowledge(backbone, layers, LinearHead(12, [4]).double())
    for kind in ("diagonal", "laplace", "dense"):
        for form in ("nll", "typical"):
            settings = replace(PIXELS, prior=PriorSettings(kind, form))
            dream = invert_pixels(known, targets, torch.Generator().manual_seed(0), settings)
            assert bool(torch.isfinite(dream.images).all())


@pytest.mark.parametrize("kind", ["none", "diagonal", "laplace", "dense"])
@pytest.mark.parametrize("form", ["nll", "typical"])
def test_a_batch_of_one(knowledge, targets, kind, form):
    prior = PriorSettings(kind, form)
    one = invert_layerwise(knowledge, targets[:1], torch.Generator().manual_seed(0), replace(LAYERWISE, prior=prior))
    assert one.images.shape == (1, 1, 8, 8)
    assert bool(torch.isfinite(one.images).all())
    one = invert_pixels(knowledge, targets[:1], torch.Generator().manual_seed(0), replace(PIXELS, prior=prior))
    assert bool(torch.isfinite(one.images).all())


def test_a_batch_of_one_has_no_gaussian_of_its_own(knowledge, targets):
    settings = replace(PIXELS, prior=PriorSettings("laplace", "kl"))
    with pytest.raises(ValueError, match="needs more rows than coordinates: a batch of 1"):
        invert_pixels(knowledge, targets[:1], torch.Generator().manual_seed(0), settings)


def test_colour_images_for_a_grey_network(knowledge, targets):
    with pytest.raises(ValueError, match=r"6 grey images \(6, 1, 8, 8\) for this network, got \(6, 3, 8, 8\)"):
        invert_pixels(knowledge, targets, torch.Generator(), PIXELS, start=torch.zeros(6, 3, 8, 8))
    settings = replace(PIXELS, augmentation=Augmentation(mean=(0.5,) * 3, std=(0.2,) * 3))
    with pytest.raises(ValueError, match="mean has 3 channels, but the network takes images with 1"):
        invert_pixels(knowledge, targets, torch.Generator(), settings)


def test_images_of_another_size(knowledge, targets):
    with pytest.raises(ValueError, match=r"got \(6, 1, 32, 32\)"):
        invert_pixels(knowledge, targets, torch.Generator(), PIXELS, start=torch.zeros(6, 1, 32, 32))


def test_a_start_that_is_not_finite(knowledge, targets):
    start = torch.zeros(6, 1, 8, 8)
    start[2, 0, 3, 3] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite pixels"):
        invert_pixels(knowledge, targets, torch.Generator(), PIXELS, start=start)


@pytest.mark.parametrize(("kind", "form"), [("laplace", "kl"), ("dense", "kl"), ("diagonal", "kl"), ("dense", "nll")])
def test_activations_that_are_not_finite_in_a_channel_prior(images, targets, kind, form):
    backbone = create_backbone("convnet8", width=3).double().eval()
    layers = measure_layers(backbone, [images], batchnorm_points(backbone), kinds=("laplace", "dense"))
    known = Knowledge(backbone, layers, LinearHead(12, [4]).double())
    with torch.no_grad():
        backbone.convolutions[3].conv.weight[0, 0, 0, 0] = float("inf")
    settings = replace(PIXELS, prior=PriorSettings(kind, form))
    with pytest.raises(InversionStoppedError, match=r"step 0: activations at 'convolutions\.3\.conv:output'"):
        invert_pixels(known, targets, torch.Generator(), settings)


def test_activations_that_are_not_finite_in_a_map_prior(images, targets):
    backbone = create_backbone("convnet8", width=3).double().eval()
    points = [str(batchnorm_points(backbone)[2])]
    maps = measure_layers(backbone, [images], points, "map", ("laplace",), transform=None)
    known = Knowledge(backbone, maps, LinearHead(12, [4]).double())
    settings = replace(PIXELS, prior=PriorSettings("laplace", "typical"))
    with torch.no_grad():
        backbone.convolutions[1].conv.weight[0, 0, 0, 0] = float("nan")
    with pytest.raises(InversionStoppedError, match=r"step 0: activations at 'convolutions\.1\.conv:output'"):
        invert_pixels(known, targets, torch.Generator(), settings)


def test_settings_out_of_range(knowledge, targets):
    with pytest.raises(ValueError, match="batch must be at least 1"):
        invert_pixels(knowledge, targets, torch.Generator(), replace(PIXELS, batch=0))
    with pytest.raises(ValueError, match="weight of the prior must not be negative"):
        PriorSettings(weight=-1.0)
    with pytest.raises(ValueError, match="give both mean and std"):
        Augmentation(mean=(0.5,))
    with pytest.raises(ValueError, match="jitter"):
        Augmentation(jitter=-1)
