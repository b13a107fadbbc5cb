"""``python -m benchmarks.train_vit --data DIR --out FOLDER``: a small vision transformer for CIFAR-100.

Twelve blocks of 128 channels over 16 patches, written as a `transformers` folder that
``remix reproduce likelihood --vit FOLDER --vit-images cifar100`` reads. It trains for a given processor time, because
what is wanted is a transformer with real features, not an accurate one. Needs the extra ``vit`` (transformers).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import ViTConfig, ViTForImageClassification

from benchmarks.features import CIFAR_MEAN, CIFAR_STD
from remix.data import load

CONFIG = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_labels": 100,
}


def normalised(images: Tensor) -> Tensor:
    """Uint8 or floats in 0..1 -> standardised floats."""
    scaled = images.float() / 255 if images.dtype == torch.uint8 else images
    return (scaled - torch.tensor(CIFAR_MEAN).view(-1, 1, 1)) / torch.tensor(CIFAR_STD).view(-1, 1, 1)


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the images flipped, all moved by up to four pixels."""
    flip = torch.rand(len(images), generator=generator).lt(0.5).view(-1, 1, 1, 1)
    images = functional.pad(torch.where(flip, images.flip(3), images), (4,) * 4)
    top, left = torch.randint(9, (2,), generator=generator).tolist()
    return images[:, :, top : top + 32, left : left + 32]


def train(data: Path, minutes: float, batch: int = 128) -> tuple[ViTForImageClassification, dict[str, float]]:
    splits = load("cifar100", data)
    rows = torch.arange(len(splits.train))
    images, labels = splits.train.batch(rows)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = ViTForImageClassification(ViTConfig(**CONFIG))
    optimiser = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.05)
    network.train()
    began, steps = time.process_time(), 0
    while True:
        for index in torch.randperm(len(images), generator=generator).split(batch):
            done = (time.process_time() - began) / (60 * minutes)
            if done >= 1:
                return network.eval(), {"steps": steps, "epochs": steps * batch / len(images)}
            for group in optimiser.param_groups:
                group["lr"] = 1.5e-3 * min(1.0, steps / 200) * 0.5 * (1 + math.cos(math.pi * done))
            x = shifted(normalised(images[index]), generator)
            loss = functional.cross_entropy(network(x).logits, labels[index], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            steps += 1
            if steps % 100 == 0:
                print(f"step {steps}, {100 * done:.0f} % of the time, loss {float(loss.detach()):.3f}", flush=True)


@torch.no_grad()
def accuracy(network: ViTForImageClassification, data: Path) -> float:
    test = load("cifar100", data).test
    right = 0
    for rows in torch.arange(len(test)).split(500):
        images, labels = test.batch(rows)
        right += int((network(normalised(images)).logits.argmax(1) == labels).sum())
    return right / len(test)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_vit", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--minutes", type=float, default=10, help="processor time")
    options = parser.parse_args()
    network, facts = train(options.data, options.minutes)
    network.save_pretrained(options.out)
    prepared = {"image_mean": list(CIFAR_MEAN), "image_std": list(CIFAR_STD), "size": 32}
    (options.out / "preprocessor_config.json").write_text(json.dumps(prepared))
    print(json.dumps({**facts, "test accuracy": accuracy(network, options.data)}))


if __name__ == "__main__":
    main()
