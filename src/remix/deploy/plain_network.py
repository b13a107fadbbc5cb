"""A model as a plain network for serving, and the note that goes with it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from remix._version import __version__
from remix.learning import Model

__all__ = ["PlainNetwork", "card", "probe"]


class PlainNetwork(nn.Module):
    """Backbone and one linear layer, on the CPU in single precision: normalised images in, logits out.

    Args:
        model: stays as it is; its weights are copied.

    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        backbone: Any = model.classifier.backbone
        self.backbone = copy.deepcopy(backbone).cpu().float()
        self.fc = model.classifier.head.plain().cpu().float()
        self.eval()
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images (N, C, H, W) to logits (N, classes)."""
        logits: Tensor = self.fc(self.backbone.pooled(images))
        return logits


def card(model: Model) -> dict[str, Any]:
    """What a program needs to know to use the network, as plain JSON."""
    channels, height, width = model.preprocessing.shape
    return {
        "classes": list(model.classes),
        "preprocessing": model.preprocessing.to_dict() | model.preprocessing.recipe(),
        "input": f"images: float32 (N, {channels}, {height}, {width})",
        "output": f"logits: float32 (N, {len(model.classes)}), in the order of classes; softmax gives probabilities",
        "network": {"backbone": model.backbone, "options": dict(model.options)},
        "remix": __version__,
    }


def probe(model: Model, count: int) -> Tensor:
    """Random images (count, C, H, W) as the network sees them, always the same."""
    generator = torch.Generator().manual_seed(count)
    pixels = torch.randint(0, 256, (count, *model.preprocessing.shape), generator=generator, dtype=torch.uint8)
    return model.preprocessing.normalisation.normalise(pixels)
