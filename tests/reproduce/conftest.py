"""Photographs and a network, both small, for targets that look at them; a preset for those that are made of runs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from remix.networks import Classifier, LinearHead, create_backbone


@pytest.fixture
def photographs(tmp_path) -> Path:
    """Soft spots of four colours, 20 + 10 of each, 32 pixels."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("val", 10)):
        for label in range(4):
            folder = tmp_path / "photos" / part / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                coarse = rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)
                coarse[..., label % 3] //= 2
                Image.fromarray(coarse).resize((32, 32), Image.Resampling.BILINEAR).save(folder / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture
def weights(tmp_path) -> Path:
    backbone = create_backbone("resnet34", generator=torch.Generator().manual_seed(0))
    tensors = Classifier(backbone, LinearHead(backbone.feature_dim, [4])).state_dict()
    renamed = {name.removeprefix("backbone."): value for name, value in tensors.items() if name.startswith("backbone.")}
    renamed["fc.weight"], renamed["fc.bias"] = torch.zeros(4, 512), torch.zeros(4)
    save_file(renamed, tmp_path / "resnet34.safetensors")
    return tmp_path / "resnet34.safetensors"


@pytest.fixture
def preset(tmp_path) -> str:
    """The settings of `write_run`."""
    path = tmp_path / "small.yaml"
    path.write_text("base: digits\nabout: three tasks\ndata: {tasks: 3, classes: 9}\n")
    return str(path)
