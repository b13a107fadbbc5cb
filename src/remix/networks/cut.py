"""Cutting a backbone in two: lower blocks that stay as they are, and a top that goes on learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from remix.networks.backbone import Backbone, Block, average_pool
from remix.networks.probe import block_shapes

__all__ = ["TopBlocks", "Trunk", "cut", "last_stage"]


class Trunk(nn.Module):
    """The lower blocks, in eval mode and without gradients: images (N, C, H, W) to what the first block above gets.

    It stays in eval mode whatever is asked of it, so that its BatchNorm statistics never move.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(block.module for block in blocks)
        self.eval()

    def train(self, mode: bool = True) -> Trunk:
        """Stay in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Run the blocks."""
        for step in self.steps:
            images = step(images)
        return images


class TopBlocks(Backbone):
    """The upper blocks of a network as a backbone of their own; its images are the maps at the cut.

    Its modules are those of the whole network, under the same paths, so that statistics, weights and their names are
    the same for both. What its first block receives is worth measuring like that of any other block.

    Args:
        whole: the network.
        blocks: its last blocks, with the path of every module of each.
        input_shape: at the cut, (C, H, W).

    """

    measures_input = True

    def __init__(
        self, whole: Backbone, blocks: Sequence[tuple[Block, Sequence[str]]], input_shape: Sequence[int]
    ) -> None:
        super().__init__(input_shape, whole.feature_dim)
        self._paths = [(block.name, tuple(paths)) for block, paths in blocks]
        for block, paths in blocks:
            modules = [block.module] if len(paths) == 1 else list(block.module.children())
            for path, module in zip(paths, modules, strict=True):
                _place(self, path, module)
        # A method would carry the whole network into every copy of the top.
        plain = type(whole).pool is Backbone.pool
        self._pool: Callable[[Tensor], Tensor] = average_pool if plain else whole.pool

    def blocks(self) -> list[Block]:
        """The upper blocks."""
        return [Block(name, self._module(paths)) for name, paths in self._paths]

    def _module(self, paths: Sequence[str]) -> nn.Module:
        modules = [self.get_submodule(path) for path in paths]
        return modules[0] if len(modules) == 1 else nn.Sequential(*modules)

    def pool(self, features: Tensor) -> Tensor:
        """As the whole network does."""
        return self._pool(features)


def cut(backbone: Backbone, frozen: int) -> tuple[Trunk, TopBlocks]:
    """Divide a backbone after its first ``frozen`` blocks. Both parts share their modules with it.

    Args:
        backbone: an ``nn.Module``.
        frozen: from 1 to one less than there are blocks.

    Raises:
        ValueError: for another number, or if the tensors at the cut are not maps (C, H, W) or the modules of a block
            are not part of the network.

    """
    blocks = backbone.blocks()
    if not 1 <= frozen < len(blocks):
        raise ValueError(f"1 to {len(blocks) - 1} of the {len(blocks)} blocks can be frozen, got {frozen}")
    assert isinstance(backbone, nn.Module)
    shape = block_shapes(backbone)[frozen]
    if len(shape) != 3:
        raise ValueError(f"after block {blocks[frozen - 1].name!r} the tensors are {shape}, not maps (C, H, W)")
    names = {id(module): name for name, module in backbone.named_modules()}
    upper = [(block, _paths(block, names)) for block in blocks[frozen:]]
    return Trunk(blocks[:frozen]), TopBlocks(backbone, upper, shape)


def last_stage(backbone: Backbone) -> int:
    """How many blocks come before those that work at the last resolution; 0 where that is all of them."""
    sizes = [shape[1:] for shape in block_shapes(backbone)[1:]]
    return next(number for number, size in enumerate(sizes) if size == sizes[-1])


def _paths(block: Block, names: dict[int, str]) -> list[str]:
    """Where a block's module is in the network; a block made of several modules has several places."""
    if id(block.module) in names:
        return [names[id(block.module)]]
    inside = list(block.module.children()) if isinstance(block.module, nn.Sequential) else []
    if not inside or any(id(module) not in names for module in inside):
        raise ValueError(f"block {block.name!r} is not among the network's modules, so it cannot be cut off")
    return [names[id(module)] for module in inside]


def _place(root: nn.Module, path: str, module: nn.Module) -> None:
    """Register a module under a dotted path, with empty containers above it."""
    *above, last = path.split(".")
    for name in above:
        if name not in dict(root.named_children()):
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    root.add_module(last, module)
