"""BatchNorm over the batch of all processes, on any device: torch's own needs CUDA."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

__all__ = ["share_batchnorm"]


class SharedBatchNorm2d(nn.BatchNorm2d):
    """In train mode, mean and variance are those of all processes' images together."""

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
            module.__class__ = SharedBatchNorm2d
