"""The networks of several selectors in training, as batched matrices, with their gradient written out.

The gradient in closed form takes half the passes over memory that automatic differentiation takes; a test holds it to
the latter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from remix.statistics.selectors import BN_EPS, SLOPE, unit_lengths

__all__ = ["SelectorNetwork"]

_MOMENTUM = 0.1  # of the running statistics


class SelectorNetwork:
    """2 x [Linear, BatchNorm in train mode, LeakyReLU] and unit length, for k classes at once.

    Args:
        dim: D.
        generators: one per class, on the CPU: the weights of a class do not depend on its company.
        like: dtype and device.

    """

    def __init__(self, dim: int, generators: Sequence[torch.Generator], like: Tensor) -> None:
        self.layers = [_Layer(dim, generators, like) for _ in range(2)]

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained; `loss_and_gradient` fills in their ``grad``."""
        return [tensor for layer in self.layers for tensor in (layer.weight, layer.scale, layer.shift)]

    def state(self) -> list[list[Tensor]]:
        """By layer, its tensors in the order of the fields of `Selectors`."""
        return [layer.state() for layer in self.layers]

    def loss_and_gradient(self, rows: Tensor) -> Tensor:
        """Contrastive losses (k,) of minibatches (k, B, D); sets the gradient of their sum."""
        hidden = rows
        for layer in self.layers:
            hidden = layer.forward(hidden)
        lengths = unit_lengths(hidden)
        z = hidden / lengths
        count = rows.shape[1]
        similarity = torch.bmm(z, z.mT).exp_()
        totals = similarity.sum(2, keepdim=True)
        losses = (totals / count).log().mean(1)[:, 0]
        # d loss / d cos_ij = exp(cos_ij) / (B sum_j exp(cos_ij)), and cos is symmetric in z.
        slope = similarity.div_(totals * count)
        grad = torch.bmm(slope + slope.mT, z)
        radial = (grad * z).sum(2, keepdim=True)
        # Through hidden / (|hidden| + eps): |z| = |hidden| / lengths is 1 but for eps, and 0 for a zero row.
        ratio = torch.linalg.vector_norm(z, dim=2, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
        grad = grad.sub_(z * (radial / ratio)).div_(lengths)
        grad = self.layers[1].backward(grad)
        self.layers[0].backward(grad, to_input=False)
        return losses


class _Layer:
    def __init__(self, dim: int, generators: Sequence[torch.Generator], like: Tensor) -> None:
        bound = dim**-0.5

        def uniform(*shape: int) -> Tensor:
            draws = [torch.rand(shape, generator=generator) for generator in generators]
            return ((torch.stack(draws) * 2 - 1) * bound).to(like)

        self.weight = uniform(dim, dim)
        # BatchNorm takes the bias out again, so its gradient is zero: it stays as drawn.
        self.bias = uniform(1, dim)
        self.scale, self.shift = torch.ones_like(self.bias), torch.zeros_like(self.bias)
        self.mean, self.variance = torch.zeros_like(self.bias), torch.ones_like(self.bias)
        self._saved: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def state(self) -> list[Tensor]:
        return [self.weight, self.bias, self.scale, self.shift, self.mean, self.variance]

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[1]
        y = torch.bmm(x, self.weight)
        mean = y.mean(1, keepdim=True)
        y.sub_(mean)
        variance = y.square().mean(1, keepdim=True)
        self.mean.lerp_(mean.add_(self.bias), _MOMENTUM)
        self.variance.lerp_(variance * (count / max(count - 1, 1)), _MOMENTUM)
        inverse = (variance + BN_EPS).rsqrt_()
        y.mul_(inverse)
        before = torch.addcmul(self.shift, y, self.scale)
        self._saved = x, y, inverse, before
        return leaky_relu(before, SLOPE)

    def backward(self, grad: Tensor, to_input: bool = True) -> Tensor:
        """Gradient in the output -> gradient in the input; sets the parameters' gradients."""
        assert self._saved is not None
        x, y, inverse, before = self._saved
        count = x.shape[1]
        grad = torch.ops.aten.leaky_relu_backward(grad, before, SLOPE, False)
        self.shift.grad = grad.sum(1, keepdim=True)
        self.scale.grad = (grad * y).sum(1, keepdim=True)
        grad.sub_(self.shift.grad / count).addcmul_(y, self.scale.grad, value=-1 / count)
        grad.mul_(self.scale * inverse)
        self.weight.grad = torch.bmm(x.mT, grad)
        return torch.bmm(grad, self.weight.mT) if to_input else grad
