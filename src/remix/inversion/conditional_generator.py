"""A generator that is told which classes to paint, and a critic that tells its images from real ones (WGAN-GP)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from remix.inversion.image_generator import ImageGenerator, initialise_uniformly
from remix.laplace.normal import standard_normal

__all__ = ["ConditionalGenerator", "Critic", "gradient_penalty"]


class ConditionalGenerator(nn.Module):
    """Mixtures of classes (N, K) and noise -> images (N, C, H, W).

    There is a learned vector per class. The vectors of a mixture are added by its shares, brought to length 1, and
    stand beside the noise; an `ImageGenerator` makes the image.

    Args:
        input_shape: (C, H, W) of one image, as of `ImageGenerator`.
        classes: K.
        width: maps of the last doubling; before it there are twice and four times as many.
        noise: length of the noise, and of the vectors.
        generator: source of the initial weights.

    Raises:
        ValueError: for a size that cannot be made.

    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        classes: int,
        width: int = 64,
        noise: int = 100,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.noise = noise
        self.vectors = nn.Parameter(standard_normal((classes, noise), generator, torch.float32, torch.device("cpu")))
        self.painter = ImageGenerator(input_shape, 2 * noise, generator, maps=(4 * width, 2 * width, width), eps=1e-5)

    def forward(self, mixtures: Tensor, noise: Tensor) -> Tensor:
        """(N, K), (N, noise) -> (N, C, H, W)."""
        images: Tensor = self.painter(torch.cat([noise, normalize(mixtures @ self.vectors)], 1))
        return images

    def paint(self, mixtures: Tensor, generator: torch.Generator) -> Tensor:
        """Images of mixtures (N, K) with new noise."""
        noise = standard_normal((len(mixtures), self.noise), generator, mixtures.dtype, mixtures.device)
        images: Tensor = self(mixtures, noise)
        return images


class Critic(nn.Module):
    """Images (N, C, H, W) -> a number each, (N,), that training makes larger for real ones.

    Seven convolutions with LeakyReLU, of which every second halves the size, and a linear layer.

    Args:
        input_shape: (C, H, W) of one image; 8 pixels at least.
        width: channels of the first convolution; the last has eight times as many.
        generator: source of the initial weights.

    Attributes:
        batches: how many it has been trained on, for whoever trains it.

    Raises:
        ValueError: for smaller images.

    """

    batches: Tensor

    def __init__(
        self, input_shape: tuple[int, int, int], width: int = 64, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        channels, height, below = input_shape
        if min(height, below) < 8:
            raise ValueError(f"a critic halves images three times: 8 pixels are the fewest, not {height} x {below}")
        sizes = [channels, *(width * times for times in (1, 2, 2, 4, 4, 8, 8))]
        layers: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise(sizes)):
            halving = number % 2 == 1
            layers += [nn.Conv2d(a, b, 4 if halving else 3, 2 if halving else 1, 1), nn.LeakyReLU(0.1)]
        self.look = nn.Sequential(*layers, nn.Flatten())
        self.judge = nn.Linear(sizes[-1] * (height // 8) * (below // 8), 1)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        initialise_uniformly(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        found: Tensor = self.judge(self.look(images))[:, 0].float()
        return found

    def fixed(self, images: Tensor) -> Tensor:
        """The same, with gradients for the images and none for the critic."""
        weights = {name: parameter.detach() for name, parameter in self.named_parameters()}
        found: Tensor = functional_call(self, weights, (images,))
        return found


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, generator: torch.Generator) -> Tensor:
    """Mean of (|g| - 1)^2, with g the gradient of the critic at a random point between a real image and a made one."""
    share = torch.rand(len(real), generator=generator, device=generator.device).to(real)[:, None, None, None]
    between = torch.lerp(fake.detach(), real, share).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (torch.linalg.vector_norm(slope.flatten(1), dim=1) - 1).square().mean()
