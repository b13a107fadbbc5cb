"""The networks of the dream benchmarks: the one that dreams, and a judge of another kind that never sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.dream_data import Images
from benchmarks.features import kept
from remix.networks import Classifier, LinearHead, create_backbone

Network = TypeVar("Network", bound=nn.Module)


class PlainJudge(nn.Module):
    """3x3 convolutions in pairs with max pooling between, no shortcuts: another kind of network than a ResNet."""

    def __init__(self, classes: int, widths: tuple[int, ...] = (32, 64, 128)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for i, width in enumerate(widths):
            if i:
                layers.append(nn.MaxPool2d(2))
            for _ in range(2):
                layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def pooled(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) -> features (N, D)."""
        return self.layers(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pooled(x))


def train(network: nn.Module, images: Images, epochs: int, rate: float, seed: int, name: str, crop: int = 4) -> None:
    """Supervised training with random crops and flips, one cycle of the learning rate."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = epochs * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.25)
    network.to(memory_format=torch.channels_last).train()
    for epoch in range(epochs):
        total = 0.0
        for index in torch.randperm(len(images), generator=generator).split(64):
            batch = augment(images.pixels[index], crop, generator)
            loss = functional.cross_entropy(network(batch), images.labels[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(index)
        print(f"training {name}: epoch {epoch + 1}/{epochs}, loss {total / len(images):.3f}", flush=True)
    network.to(memory_format=torch.contiguous_format).eval()


def augment(batch: Tensor, crop: int, generator: torch.Generator) -> Tensor:
    """Each image is mirrored with probability 1/2 and shifted by up to ``crop`` pixels, zeros coming in."""
    count, _, height, width = batch.shape
    mirrored = torch.rand(count, generator=generator) < 0.5
    batch = torch.where(mirrored[:, None, None, None], batch.flip(3), batch)
    top, left = torch.randint(2 * crop + 1, (2, count), generator=generator)
    rows = (top[:, None] + torch.arange(height))[:, :, None]
    columns = (left[:, None] + torch.arange(width))[:, None, :]
    padded = functional.pad(batch, (crop,) * 4).permute(0, 2, 3, 1)
    return padded[torch.arange(count)[:, None, None], rows, columns].permute(0, 3, 1, 2)


def dreamer(cache: Path, images: Images, width: int, epochs: int) -> Classifier:
    """A ResNet-32 with a bias-free head, trained on the images or read from the cache."""
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("resnet32", width=width, generator=generator)
    classifier = Classifier(backbone, LinearHead(backbone.feature_dim, [10], generator=generator))
    return trained(classifier, cache / f"resnet32_w{width}.safetensors", images, epochs, 0.1, seed=0)


def judge(cache: Path, images: Images, name: str, epochs: int, widths: tuple[int, ...] = (32, 64, 128)) -> PlainJudge:
    """A `PlainJudge`, trained on the images or read from the cache."""
    torch.manual_seed(1)
    return trained(PlainJudge(10, widths), cache / f"{name}.safetensors", images, epochs, 0.05, seed=1)


def trained(network: Network, file: Path, images: Images, epochs: int, rate: float, seed: int) -> Network:
    """The network with the weights of the file, trained first if it is not there."""

    def make() -> dict[str, Tensor]:
        train(network, images, epochs, rate, seed, file.stem)
        return dict(network.state_dict())

    network.load_state_dict(kept(file, make))
    return network.eval().requires_grad_(False)


@torch.no_grad()
def features_of(network: PlainJudge, pixels: Tensor, size: int = 250) -> Tensor:
    """Features (N, D) of a judge."""
    return torch.cat([network.pooled(part) for part in pixels.split(size)])
