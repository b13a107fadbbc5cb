"""The device, the precision and the other processes: lightning-fabric behind the few things training asks of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from remix.learning.shared_batchnorm import share_batchnorm
from remix.networks import Backbone

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Team", "full_precision"]


class Team:
    """One process, or several that divide every batch among them and stay in step.

    Every process sees the whole batch and draws the same random numbers; each sends its own rows through the backbone,
    and the features are gathered, so that losses over whole batches mean the same with any number of processes.

    Args:
        fabric: launched; one process on the CPU by default.

    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        if fabric is None:
            from lightning_fabric import Fabric  # takes a second: only who learns waits for it

            fabric = Fabric(accelerator="cpu", devices=1)
        self.fabric = fabric

    @property
    def device(self) -> torch.device:
        """Where networks and batches belong."""
        return self.fabric.device

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.fabric.global_rank == 0

    def prepare(self, network: nn.Module) -> None:
        """Move a network to its device; with several processes, let its BatchNorm layers see the whole batch."""
        network.to(self.device)
        if self.fabric.world_size > 1:
            share_batchnorm(network)

    def precision(self) -> AbstractContextManager[None]:
        """The context in which networks run."""
        return self.fabric.autocast()

    def pooled(self, backbone: Backbone, images: Tensor) -> Tensor:
        """Pooled features (N, D) of all images (N, C, H, W), in float32 or more."""
        if self.fabric.world_size == 1:
            return full_precision(backbone.pooled(images))
        share = -(-len(images) // self.fabric.world_size)
        own = images[share * self.fabric.global_rank :][:share]
        features = full_precision(backbone.pooled(own))
        missing = share - len(features)
        padded = torch.cat([features, features.new_zeros(missing, features.shape[1])]) if missing else features
        gathered = self.fabric.all_gather(padded, sync_grads=torch.is_grad_enabled())
        assert isinstance(gathered, Tensor)
        return gathered.reshape(-1, features.shape[1])[: len(images)]

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make the gradients those of the whole batch."""
        if self.fabric.world_size == 1:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                averaged = self.fabric.all_reduce(parameter.grad, reduce_op="mean")
                assert isinstance(averaged, Tensor)
                parameter.grad.copy_(averaged)


def full_precision(features: Tensor) -> Tensor:
    """In float32 even where the network runs in half precision: losses compare small differences."""
    return features if features.dtype == torch.float64 else features.float()
