"""A backbone and a head as one network; copies of it that do not learn."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from torch import Tensor, nn

from remix.networks.backbone import Backbone
from remix.networks.heads import Head

__all__ = ["Classifier", "frozen_copy", "saved_state"]


class Classifier(nn.Module):
    """A backbone and a head: images in, logits out.

    Args:
        backbone: the network.
        head: its head; ``feature_dim`` must be the backbone's.

    Raises:
        ValueError: if the two do not fit together.

    """

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        if backbone.feature_dim != head.feature_dim:
            raise ValueError(
                f"the backbone gives features of length {backbone.feature_dim}, the head takes {head.feature_dim}"
            )
        self.backbone = backbone
        self.head = head

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Map images (N, C, H, W), or what block ``start`` receives, to logits (N, num_classes)."""
        logits: Tensor = self.head(self.backbone.pooled(x, start))
        return logits


def frozen_copy(network: Classifier, learning: Iterable[nn.Module]) -> Classifier:
    """A copy in eval mode that asks for no gradients: what the network is now, whatever it learns.

    Args:
        network: to be copied.
        learning: its modules that will change. Parameters of all others are shared, not copied; buffers are copied.

    """
    changing = {id(parameter) for module in learning for parameter in module.parameters()}
    shared = {id(parameter): parameter for parameter in network.parameters() if id(parameter) not in changing}
    copied = copy.deepcopy(network, dict(shared))
    return copied.requires_grad_(False).eval()


def saved_state(network: nn.Module, known: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network without parameters that it shares with another, which is saved or known anyway."""
    elsewhere = {id(parameter) for parameter in known.parameters()}
    shared = {name for name, parameter in network.named_parameters() if id(parameter) in elsewhere}
    return {name: tensor for name, tensor in network.state_dict().items() if name not in shared}
