"""Real features to fit: digits that come with scikit-learn, and, given a data folder, CIFAR-100 and Imagenette.

A set is (rows to fit, held-out rows, layout or None). What takes long (training the CIFAR network, running the
ResNet-34) is done once and kept as safetensors in the cache folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from remix.networks import CifarResNet, create_backbone, load_weights

CIFAR_MEAN, CIFAR_STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass
class FeatureSet:
    """Rows (N, D), and the (channels, height, width) they were flattened from, if any."""

    name: str
    fit: Tensor
    held_out: Tensor
    layout: tuple[int, int, int] | None = None

    @classmethod
    def of_maps(cls, name: str, fit: Tensor, held_out: Tensor) -> FeatureSet:
        return cls(name, fit.flatten(1).float(), held_out.flatten(1).float(), tuple(fit.shape[1:]))  # type: ignore[arg-type]


def kept(path: Path, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of a cache file, made first if it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        save_file({name: v.contiguous() for name, v in make().items()}, unfinished)
        unfinished.rename(path)
    return load_file(path)


def normalise(images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """uint8 (N, C, H, W) -> standardised floats."""
    scaled = torch.from_numpy(images).float() / 255
    return (scaled - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


def train(
    network: nn.Module, dim: int, images: Tensor, labels: Tensor, epochs: int, rate: float, crop: int = 0
) -> nn.Linear:
    """Plain supervised training of ``network.pooled``; returns the linear head."""
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(dim, int(labels.max()) + 1)
    parameters = [*network.parameters(), *head.parameters()]
    optimiser = torch.optim.SGD(parameters, rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = epochs * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.2)
    network.train()
    for _ in range(epochs):
        for index in torch.randperm(len(images), generator=generator).split(64):
            batch = images[index]
            if crop:
                flip = torch.rand(len(batch), generator=generator).lt(0.5).view(-1, 1, 1, 1)
                batch = torch.where(flip, batch.flip(3), batch)
                top, left = torch.randint(2 * crop + 1, (2,), generator=generator).tolist()
                height, width = batch.shape[2:]
                batch = functional.pad(batch, (crop,) * 4)[:, :, top : top + height, left : left + width]
            loss = functional.cross_entropy(head(network.pooled(batch)), labels[index])  # type: ignore[operator]
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    network.eval()
    return head


@torch.no_grad()
def block_outputs(network: nn.Module, images: Tensor, names: tuple[str, ...], batch: int = 20) -> dict[str, Tensor]:
    """Outputs (N, C, H, W) of the named blocks, in half precision."""
    kept_outputs: dict[str, list[Tensor]] = {name: [] for name in names}
    for part in images.split(batch):
        x = part
        for name, block, _ in network.blocks():  # type: ignore[operator]
            x = block(x)
            if name in kept_outputs:
                kept_outputs[name].append(x.half())
    return {name: torch.cat(parts) for name, parts in kept_outputs.items()}


def digits() -> list[FeatureSet]:
    """Pixels of the 8 x 8 digits, and hidden features of a small network trained on half of them."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = torch.randperm(len(data.images), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(data.images).float()[order, None] / 16
    labels = torch.from_numpy(data.target)[order]
    torch.manual_seed(0)
    network = create_backbone("convnet8", generator=torch.Generator().manual_seed(0))
    train(network, network.feature_dim, images[:900], labels[:900], 30, 0.05)
    with torch.no_grad():
        pooled, maps = network.pooled(images), network.features(images)
    return [
        FeatureSet("digits, pixels", images[:1200].flatten(1), images[1200:].flatten(1)),
        FeatureSet("digits, hidden features", pooled[:1200], pooled[1200:]),
        FeatureSet.of_maps("digits, hidden map", maps[:1200], maps[1200:]),
    ]


def cifar(data: Path, cache: Path) -> list[FeatureSet]:
    """Maps and channels of a ResNet-14 trained on the first ten classes of CIFAR-100."""

    def read(part: str) -> tuple[Tensor, Tensor]:
        records = np.fromfile(data / "cifar-100-binary" / f"{part}.bin", np.uint8).reshape(-1, 3074)
        records = records[records[:, 1] < 10]
        images = records[:, 2:].reshape(-1, 3, 32, 32)
        return normalise(images, CIFAR_MEAN, CIFAR_STD), torch.from_numpy(records[:, 1].astype(np.int64))

    images, labels = read("train")

    def make_network() -> dict[str, Tensor]:
        torch.manual_seed(0)
        network = CifarResNet(14, generator=torch.Generator().manual_seed(0))
        train(network, 64, images, labels, epochs=20, rate=0.2, crop=4)
        return dict(network.state_dict())

    network = CifarResNet(14)
    network.load_state_dict(kept(cache / "cifar_resnet14.safetensors", make_network))
    network.eval()
    names = ("stage_1.1", "stage_2.1", "stage_4.0")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))[:1500]
    maps = kept(cache / "cifar_maps.safetensors", lambda: block_outputs(network, images[order], names, 100))
    sets = []
    for name, title in zip(names, ("layer 1", "layer 2", "layer 3"), strict=True):
        held_out = maps[name][1000:]
        for count in (200, 1000):
            sets.append(FeatureSet.of_maps(f"CIFAR ResNet-14, {title} map, N = {count}", maps[name][:count], held_out))
    positions = maps["stage_4.0"].float().permute(0, 2, 3, 1)
    fit, held_out = positions[:1000].reshape(-1, 64)[::3], positions[1000:].reshape(-1, 64)
    return [*sets, FeatureSet("CIFAR ResNet-14, channels of layer 3", fit, held_out)]


def imagenette(data: Path, cache: Path) -> list[FeatureSet]:
    """Maps of the real ResNet-34 on four Imagenette classes, and pooled features of all ten."""
    from PIL import Image

    def read(part: str, classes: int, count: int) -> Tensor:
        folders = sorted((data / "imagenette" / part).iterdir())[:classes]
        files = [sorted(folder.glob("*.jpg"))[:count] for folder in folders]
        mixed = [file for group in zip(*files, strict=True) for file in group]
        pixels = np.stack([np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1) for file in mixed])
        return normalise(pixels, IMAGENET_MEAN, IMAGENET_STD)

    network = create_backbone("resnet34")
    load_weights(network, data / "weights" / "resnet34_imagenette10_fp16.safetensors")
    network.eval()
    ends = ("layer1.2", "layer2.3", "layer3.5", "layer4.2")
    maps = kept(cache / "imagenette_maps.safetensors", lambda: block_outputs(network, read("train", 4, 75), ends))

    def pool(part: str, count: int) -> Tensor:
        outputs = block_outputs(network, read(part, 10, count), ends)
        return torch.cat([outputs[name].float().mean((2, 3)) for name in ("layer3.5", "layer2.3")], 1)

    pooled = kept(cache / "imagenette_pooled.safetensors", lambda: {"fit": pool("train", 100), "held": pool("val", 30)})
    sets = [FeatureSet("ResNet-34 on Imagenette, pooled layers 2, 3", pooled["fit"], pooled["held"])]
    for number, name in enumerate(ends, start=1):
        title = f"ResNet-34 on Imagenette, layer {number} map"
        sets.append(FeatureSet.of_maps(title, maps[name][:240], maps[name][240:]))
    return sets
