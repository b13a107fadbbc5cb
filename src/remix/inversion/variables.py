"""What is optimised: tensors, and how they become what a network sees, perhaps through random augmentation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

__all__ = ["Augmentation", "GrowingVariable", "Render", "TensorVariable", "Variable"]

Render = Callable[[list[Tensor], slice], tuple[Tensor, Tensor]]
"""From leaves and their part of the batch to the images (or block inputs) and what the network receives."""


class Variable(ABC):
    """The unknowns of an optimisation.

    Attributes:
        tensors: their current values; the loop replaces or overwrites them.
        count: size of the batch.
        divisible: whether parts of the batch can be looked at one after another.

    """

    tensors: list[Tensor]
    count: int
    divisible = True

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Render:
        """Draw what is random in one step."""

    @abstractmethod
    def leaves(self, part: slice) -> list[Tensor]:
        """The unknowns behind a part of the batch, ready for gradients."""

    def commit(self) -> None:  # noqa: B027 (most have nothing else)
        """Make what else changed in the last rendering (such as running averages) permanent."""

    def resize(self, step: int) -> bool:
        """Bring the unknowns to the size that they have from this step on; whether that changed them."""
        return False

    def extras(self) -> dict[str, Tensor]:
        """State besides the unknowns, for a checkpoint."""
        return {}

    def restore(self, extras: dict[str, Tensor]) -> None:  # noqa: B027
        """Take back what `extras` gave."""


class TensorVariable(Variable):
    """A batch of images, or of block inputs, (N, ...), perhaps seen through an augmentation."""

    def __init__(self, start: Tensor, augmentation: Augmentation | None = None) -> None:
        self.tensors = [start.detach().clone()]
        self.count = len(start)
        self.augmentation = augmentation

    def draw(self, generator: torch.Generator) -> Render:
        """Draw the augmentation."""
        if self.augmentation is None:
            return lambda leaves, part: (leaves[0], leaves[0])
        drawn = self.augmentation.draw(self.count, generator)
        return lambda leaves, part: (leaves[0], drawn(leaves[0], part))

    def leaves(self, part: slice) -> list[Tensor]:
        """The part's own tensor."""
        return [self.tensors[0][part].detach().requires_grad_()]


class GrowingVariable(TensorVariable):
    """Maps (N, C, h, w) that begin small and double their sides on the way; the network always sees them whole.

    Args:
        start: as small as they begin.
        whole: (H, W) that they grow to.
        steps: of the optimisation; each size has an equal share of them.

    """

    def __init__(self, start: Tensor, whole: tuple[int, int], steps: int) -> None:
        super().__init__(start)
        self.whole, self.steps = whole, steps
        sizes = [(min(start.shape[2], whole[0]), min(start.shape[3], whole[1]))]
        while sizes[-1] != whole:
            sizes.append((min(2 * sizes[-1][0], whole[0]), min(2 * sizes[-1][1], whole[1])))
        self.sizes = sizes

    def resize(self, step: int) -> bool:
        """Enlarge them where it is time."""
        size = self.sizes[min(step * len(self.sizes) // self.steps, len(self.sizes) - 1)]
        if tuple(self.tensors[0].shape[2:]) == size:
            return False
        self.tensors = [interpolate(self.tensors[0].detach(), size, mode="bicubic", align_corners=False)]
        return True

    def draw(self, generator: torch.Generator) -> Render:
        """Nothing is random."""

        def render(leaves: list[Tensor], part: slice) -> tuple[Tensor, Tensor]:
            found = leaves[0]
            if tuple(found.shape[2:]) != self.whole:
                found = interpolate(found, self.whole, mode="bicubic", align_corners=False)
            return found, found

        return render


@dataclass(frozen=True)
class Augmentation:
    """What happens to images on their way into the network, in this order.

    Attributes:
        jitter: the batch is rolled by up to so many pixels along each axis.
        flip: probability that an image is mirrored left to right.
        rotation: of each image, up to so many degrees.
        shift: of each image, up to this fraction of its size.
        scale: of each image, by a factor up to 1 +- this.
        size: (H, W) to which images are resized (bilinear), if they are not of that size already.
        mean: of each channel, taken off at the end.
        std: of each channel, divided by at the end.

    Raises:
        ValueError: for numbers out of range.

    """

    jitter: int = 0
    flip: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0
    scale: float = 0.0
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.jitter < 0 or not 0 <= self.flip <= 1 or not 0 <= self.scale < 1:
            raise ValueError(f"jitter must be 0 or more, flip within 0..1 and scale within 0..1, got {self}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("give both mean and std of the images' normalisation, or neither")
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor, slice], Tensor]:
        """Draw what ``count`` images go through in one step: a function of a part of them, and of which part it is."""
        source = generator.device
        roll = [0, 0]
        if self.jitter:
            roll = torch.randint(-self.jitter, self.jitter + 1, (2,), generator=generator, device=source).tolist()
        mirrored = None
        if self.flip:
            mirrored = torch.rand(count, generator=generator, device=source) < self.flip
        warp = self._draw_warp(count, generator)

        def apply(images: Tensor, part: slice) -> Tensor:
            x = images
            if any(roll):
                x = torch.roll(x, roll, (-2, -1))
            if mirrored is not None:
                x = torch.where(mirrored[part].to(x.device)[:, None, None, None], x.flip(-1), x)
            if warp is not None:
                grid = affine_grid(warp[part].to(x), list(x.shape), align_corners=False)
                x = grid_sample(x, grid, padding_mode="reflection", align_corners=False)
            return self.plain(x)

        return apply

    def plain(self, images: Tensor) -> Tensor:
        """What the network sees without anything random: resized and normalised images."""
        x = images
        if self.size is not None and tuple(x.shape[-2:]) != self.size:
            x = interpolate(x, self.size, mode="bilinear", align_corners=False)
        if self.mean is not None and self.std is not None:
            x = (x - x.new_tensor(self.mean)[:, None, None]) / x.new_tensor(self.std)[:, None, None]
        return x

    def _draw_warp(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Affine matrices (count, 2, 3), or None."""
        if not (self.rotation or self.shift or self.scale):
            return None
        uniform = torch.rand(count, 4, generator=generator, device=generator.device) * 2 - 1
        angle = uniform[:, 0] * math.radians(self.rotation)
        factor = 1 + uniform[:, 1] * self.scale
        cos, sin = angle.cos() * factor, angle.sin() * factor
        move = 2 * self.shift * uniform[:, 2:]  # affine_grid's axes run from -1 to 1
        return torch.stack([cos, -sin, move[:, 0], sin, cos, move[:, 1]], 1).reshape(-1, 2, 3)
