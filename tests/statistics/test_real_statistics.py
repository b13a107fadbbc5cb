"""Statistics of published weights on real images. Runs where REMIX_DATA names a folder with CIFAR-100 and weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from remix.networks import load_classifier
from remix.statistics import Hooks, batchnorm_points, batchnorm_statistics, measure_layers, rescale_to_batchnorm

pytestmark = pytest.mark.slow

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def existing(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def test_channel_statistics_of_resnet20_on_cifar100(data_dir):
    records = np.fromfile(existing(data_dir / "cifar-100-binary" / "test.bin"), np.uint8, count=300 * 3074)
    pixels = torch.from_numpy(records.reshape(-1, 3074)[:, 2:].reshape(-1, 3, 32, 32).copy())
    images = (pixels / 255 - MEAN) / STD
    backbone = load_classifier("resnet20", existing(data_dir / "weights" / "cifar10_resnet20.safetensors")).backbone
    points = batchnorm_points(backbone)[::3]
    layers = measure_layers(backbone, images[:200].split(50), points, kinds=("laplace", "dense"))
    running = batchnorm_statistics(backbone)
    with Hooks(backbone.eval(), points) as hooks, torch.no_grad():
        backbone.features(images[200:])
    gains = []
    for key, layer in layers.items():
        # CIFAR-100 looks much like CIFAR-10, on which the running averages were taken.
        ratio = layer.variance / running[key].variance
        assert 0.5 < ratio.median() < 2
        rows = layer.view.rows(hooks[layer.point])
        diagonal, laplace, dense = (float(layer.prior(kind).log_prob(rows).mean()) / layer.dim for kind in layer.kinds)
        gains.append((laplace - diagonal, dense - diagonal))
    # On images that were not measured, in every layer: diagonal < laplace < dense.
    assert all(0 < laplace < dense for laplace, dense in gains)
    rescaled = rescale_to_batchnorm(layers, backbone)
    for key, layer in rescaled.items():
        assert torch.allclose(layer.normal.variance, running[key].variance, rtol=1e-3)
