"""Are the dreams of the CIFAR network nearer to its training images than test images are? See docs/privacy.md.

    python -m benchmarks.dream_audit --data DIR --cache DIR --out docs/privacy

The network and the dreams are those of benchmarks.dream_quality with the same cache: REMIX's prior (Laplace covariances
of channels, typical set) layer by layer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.dream_data import CIFAR_NAMES, read_cifar
from benchmarks.dream_networks import dreamer
from benchmarks.dream_plan import dream, measure, plans
from benchmarks.features import CIFAR_MEAN, CIFAR_STD
from remix.data import ImageDataset, Preprocessing
from remix.deploy.audit import audit, audit_table, write_report
from remix.learning import Model

WEIGHT = 16.0  # of the prior, as tuned by benchmarks.dream_quality
NOISE = 70.0  # levels of 0..255: then copies are as far from their originals in pixels as dreams from any image


def pixels(images: Tensor) -> Tensor:
    """Normalised images -> uint8."""
    mean, std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (CIFAR_MEAN, CIFAR_STD))
    return ((images * std + mean).clamp(0, 1) * 255).round().byte()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=480)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    train, test = read_cifar(chosen.data, "train"), read_cifar(chosen.data, "test")
    classifier = dreamer(chosen.cache, train, width=8, epochs=24)
    plan = next(p for p in plans("layerwise") if (p.place, p.kind, p.form) == ("channels", "laplace", "typical"))
    known = measure(classifier, train, chosen.cache)
    dreams = dream(known, plan, WEIGHT, chosen.count, chosen.seed, chosen.cache)
    preprocessing = Preprocessing(32, 3, CIFAR_MEAN, CIFAR_STD)
    model = Model(classifier, "resnet32", {"width": 8}, CIFAR_NAMES, preprocessing)
    trained = ImageDataset(pixels(train.pixels), train.labels, CIFAR_NAMES)
    dreamed = ImageDataset(pixels(dreams.pixels), dreams.labels, CIFAR_NAMES)
    labels = train.labels, test.labels
    result = audit(model, dreamed.images, trained.images, pixels(test.pixels), labels)
    print(audit_table(result))
    print(result.conclusion())
    print(f"surer of training images in {100 * (result.membership or 0):.1f}% of pairs")
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_report(chosen.out / "audit_cifar.png", result, dreamed, trained)
    print("\nControl: training images under noise, as rough as the dreams, in place of dreams")
    generator = torch.Generator().manual_seed(0)
    chosen_images = pixels(train.pixels[torch.randperm(len(train), generator=generator)[: chosen.count]]).float()
    noise = NOISE * torch.randn(chosen_images.shape, generator=generator)
    copies = (chosen_images + noise).clamp(0, 255).round().byte()
    control = audit(model, copies, pixels(train.pixels), pixels(test.pixels))
    print(audit_table(control))
    print(control.conclusion())


if __name__ == "__main__":
    main()
