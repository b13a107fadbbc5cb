"""A backbone and a head as one network."""

from __future__ import annotations

from torch import Tensor, nn

from remix.networks.backbone import Backbone
from remix.networks.head import GrowingHead


class Classifier(nn.Module):
    """A backbone and a head: images in, logits out.

    Args:
        backbone: an ``nn.Module`` that keeps the promise of :class:`~remix.networks.Backbone`.
        head: its head; ``feature_dim`` must be the backbone's.

    Raises:
        ValueError: if the two do not fit together.

    """

    def __init__(self, backbone: Backbone, head: GrowingHead) -> None:
        super().__init__()
        if backbone.feature_dim != head.feature_dim:
            raise ValueError(
                f"the backbone gives features of length {backbone.feature_dim}, the head takes {head.feature_dim}"
            )
        self.backbone = backbone
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to logits (N, num_classes)."""
        return self.head.logits(self.backbone.pooled(x))
