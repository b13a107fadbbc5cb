"""The device, the precision and the other processes: lightning-fabric behind the few things training asks of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from remix.networks import Backbone

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Team", "as_device", "full_precision", "share_batchnorm"]


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

    @classmethod
    def on(cls, device: str) -> Team:
        """One process on one device, such as auto, cpu or mps. Raises ValueError for one that is not there."""
        from lightning_fabric import Fabric

        if device == "cpu":
            return cls()
        try:
            return cls(Fabric(accelerator=device, devices=1))
        except Exception as error:
            raise ValueError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from error

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

    def pooled(self, backbone: Backbone, images: Tensor, start: int = 0) -> Tensor:
        """Pooled features (N, D) of all images, or inputs of block ``start``, in float32 or more."""
        if self.fabric.world_size == 1:
            return full_precision(backbone.pooled(images, start))
        share = -(-len(images) // self.fabric.world_size)
        own = images[share * self.fabric.global_rank :][:share]
        features = full_precision(backbone.pooled(own, start))
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


def as_device(name: str) -> torch.device:
    """A device by name; "auto" is the accelerator if there is one.

    Raises:
        ValueError: for a device that is not there.

    """
    if name == "auto":
        for kind, available in (("cuda", torch.cuda.is_available), ("mps", torch.backends.mps.is_available)):
            if available():
                return torch.device(kind)
        return torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error


class _SharedBatchNorm2d(nn.BatchNorm2d):
    """In train mode, mean and variance are those of all processes' images together; torch's own needs CUDA."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same."""
        if not self.training:
            return super().forward(x)
        rows = x.to(self.weight.dtype)  # sums of half precision would be worth nothing
        own = torch.cat([rows.sum((0, 2, 3)), rows.square().sum((0, 2, 3)), rows.new_tensor([x.numel() / x.shape[1]])])
        total = all_reduce(own)
        channels, count = x.shape[1], total[-1]
        mean = total[:channels] / count
        variance = (total[channels:-1] / count - mean.square()).clamp_min(0)
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                step = self.momentum if self.momentum is not None else 0.1
                self.running_mean.lerp_(mean, step)
                self.running_var.lerp_(variance * count / (count - 1), step)
                assert self.num_batches_tracked is not None
                self.num_batches_tracked += 1
        scale = (variance + self.eps).rsqrt() * self.weight
        return (rows * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]).to(x.dtype)


def share_batchnorm(network: nn.Module) -> None:
    """Make every BatchNorm layer of a network a shared one, in place; names and tensors stay."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = _SharedBatchNorm2d
