"""Published weights on real images. Runs where REMIX_DATA names a folder with imagenette/ and weights/."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from remix.networks import Backbone, load_classifier

pytestmark = pytest.mark.slow

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
# The head's rows follow the order of ImageNet, not of the alphabet.
CLASSES = [
    "tench",
    "english_springer",
    "cassette_player",
    "chain_saw",
    "church",
    "french_horn",
    "garbage_truck",
    "gas_pump",
    "golf_ball",
    "parachute",
]


def existing(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def photographs(folder: Path) -> Tensor:
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in sorted(folder.glob("*.jpg"))])
    return (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - MEAN) / STD


def test_resnet34_gets_296_of_the_300_validation_photographs_right(data_dir):
    folder = existing(data_dir / "imagenette" / "val")
    model = load_classifier(
        "resnet34", existing(data_dir / "weights" / "resnet34_imagenette10_fp16.safetensors")
    ).eval()
    with torch.inference_mode():
        right = [(model(photographs(folder / name)).argmax(1) == k).sum().item() for k, name in enumerate(CLASSES)]
    assert sum(right) == 296


def running_statistics_error(backbone: Backbone, images: Tensor) -> float:
    """Mean KL from the stored BatchNorm statistics to those of real images; large for a network wired otherwise."""
    errors = []

    def compare(norm: nn.BatchNorm2d, arguments: tuple[Tensor, ...]) -> None:
        mean, var = arguments[0].mean((0, 2, 3)), arguments[0].var((0, 2, 3))
        ratio = var / norm.running_var
        errors.append(0.5 * (ratio - 1 - ratio.log() + (mean - norm.running_mean) ** 2 / norm.running_var).mean())

    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(compare)
    with torch.inference_mode():
        backbone.features(images)
    return torch.stack(errors).mean().item()


@pytest.mark.parametrize("name", ["resnet20", "resnet32"])
def test_cifar10_weights_see_the_statistics_they_were_trained_with(data_dir, name):
    file = existing(data_dir / "weights" / f"cifar10_{name}.safetensors")
    records = np.fromfile(existing(data_dir / "cifar-100-binary" / "test.bin"), np.uint8, count=100 * 3074)
    pixels = torch.from_numpy(records.reshape(-1, 3074)[:, 2:].reshape(-1, 3, 32, 32).copy())
    images = (pixels / 255 - MEAN) / STD
    right = running_statistics_error(load_classifier(name, file).eval().backbone, images)
    assert right < 0.1
    for wrong in ({"final_relu": False}, {"padding": "append"}):
        assert running_statistics_error(load_classifier(name, file, **wrong).eval().backbone, images) > 2 * right
