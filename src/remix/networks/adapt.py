"""Making a backbone of a user's own network by naming its block modules."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from remix.networks.backbone import Backbone, Block, average_pool, image_shape
from remix.networks.probe import check_backbone, evaluating, probe_images, same
from remix.networks.registry import create_backbone

BlockPath = str | Sequence[str]
"""The path of a module such as ``"layer1.0"``, or several that run one after the other and make one block."""


def as_backbone(
    network: str | nn.Module,
    *,
    blocks: Sequence[BlockPath] | None = None,
    input_shape: tuple[int, int, int] | None = None,
    **options: object,
) -> Backbone:
    """Make a backbone of a name, of a :class:`Backbone`, or of any ``nn.Module``.

    Args:
        network: a registered name, or a network.
        blocks: for a network of your own: its block modules in order, as paths (see :class:`ModuleBackbone`).
        input_shape: (C, H, W) of one image; needed together with ``blocks``, an option of most names.
        options: further options of a name.

    Raises:
        TypeError: if the network is none of the three; the message says what to add.
        ValueError: if it breaks a promise (:func:`check_backbone`) or a path is wrong.

    """
    if isinstance(network, str):
        if blocks is not None:
            raise TypeError(f"blocks is for networks of your own; {network!r} knows its blocks")
        if input_shape is not None:
            options["input_shape"] = input_shape
        return create_backbone(network, **options)
    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a backbone's name or an nn.Module, got {type(network).__name__}")
    if options:
        raise TypeError(f"{', '.join(options)}: options go with a backbone's name, not with a network that exists")
    if blocks is not None:
        if input_shape is None:
            raise TypeError("give input_shape=(channels, height, width) together with blocks")
        return ModuleBackbone(network, blocks, input_shape)
    if not isinstance(network, Backbone):
        raise TypeError(
            f"{type(network).__name__} is not a backbone yet: name its block modules in order with blocks=[...] and "
            f"give input_shape=(C, H, W), or derive it from remix.networks.Backbone. Modules: {_candidates(network)}"
        )
    check_backbone(network)
    return network


class ModuleBackbone(Backbone):
    """A network of the user's, cut into the blocks that were named.

    The blocks must lead from the image to the features without a step between them: the network is run once on random
    images and the output of every block is compared with the input of the next. Whatever follows the last block
    (pooling, a classifier) is not used. Modules that work in place are switched to the out-of-place form, which
    computes the same, because statistics and inversion look at the tensors in between.

    Args:
        network: the network, in any mode; the mode is left as it is.
        paths: the blocks in order. A block is a module path such as ``"layer1.0"`` or a list of paths that run one
            after the other, such as ``["conv1", "bn1", "relu", "maxpool"]``.
        input_shape: (C, H, W) of one image.

    Raises:
        ValueError: for a path that does not exist (the message lists the candidates), a module that runs never or more
            than once, and steps of the network that lie outside the blocks.

    """

    def __init__(self, network: nn.Module, paths: Sequence[BlockPath], input_shape: tuple[int, int, int]) -> None:
        input_shape = image_shape(input_shape)
        groups = [[path] if isinstance(path, str) else list(path) for path in paths]
        if not groups or not all(groups):
            raise ValueError(f"name at least one module per block. Modules: {_candidates(network)}")
        flat = [path for group in groups for path in group]
        for path in flat:
            _check_path(network, path)
        for module in network.modules():
            if getattr(module, "inplace", False):
                module.inplace = False  # type: ignore[assignment]
        last = _check_chain(network, flat, input_shape)
        super().__init__(input_shape, feature_dim=average_pool(last).shape[1])
        self.network = network
        self.groups = groups
        check_backbone(self)

    def blocks(self) -> list[Block]:
        """Return the named modules; a block of several is called by their paths joined with ``+``."""
        return [Block("+".join(group), self._module(group)) for group in self.groups]

    def _module(self, group: list[str]) -> nn.Module:
        modules: list[nn.Module] = [self.network.get_submodule(path) for path in group]
        return modules[0] if len(modules) == 1 else nn.Sequential(*modules)


def _check_path(network: nn.Module, path: str) -> None:
    known = [name for name, _ in network.named_modules() if name]
    if path not in known:
        close = get_close_matches(path, known, n=3)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise ValueError(f"{type(network).__name__} has no module {path!r}{hint}. Modules: {_candidates(network)}")


def _candidates(network: nn.Module, limit: int = 60) -> str:
    paths = [path for path, _ in network.named_modules() if path]
    listed = ", ".join(paths[:limit])
    return listed if len(paths) <= limit else f"{listed}, ... ({len(paths)} in all)"


def _check_chain(network: nn.Module, paths: Sequence[str], input_shape: tuple[int, int, int]) -> Tensor:
    """Run the network once, check that the modules pass their tensors straight on, return what the last one gives."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def record_input(path: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if path in inputs:
            raise ValueError(f"module {path!r} runs more than once; a block must be a step of its own")
        if len(arguments) != 1 or named or not isinstance(arguments[0], Tensor):
            raise ValueError(f"module {path!r} must take one tensor and nothing else to be a block")
        inputs[path] = arguments[0].clone()

    def record_output(path: str, output: object) -> None:
        if not isinstance(output, Tensor):
            raise ValueError(f"module {path!r} returns {type(output).__name__}; a block must return one tensor")
        outputs[path] = output.clone()

    handles = []
    for path in paths:
        module = network.get_submodule(path)
        handles.append(
            module.register_forward_pre_hook(
                lambda _, arguments, named, path=path: record_input(path, arguments, named), with_kwargs=True
            )
        )
        handles.append(module.register_forward_hook(lambda _, __, output, path=path: record_output(path, output)))
    images = probe_images(network, input_shape)
    try:
        with evaluating(network):
            network(images.clone())
    except RuntimeError as error:
        raise ValueError(
            f"{type(network).__name__} does not run on images of input_shape {tuple(input_shape)}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    before, x = "the image", images
    for path in paths:
        if path not in inputs:
            raise ValueError(f"module {path!r} does not run when the network does, so it cannot be a block")
        if not same(inputs[path], x):
            raise ValueError(
                f"what module {path!r} receives is not what {before} gives: a step of the network in between belongs "
                f"to no block. Name the module that does it, or make it one. Modules: {_candidates(network)}"
            )
        before, x = f"module {path!r}", outputs[path]
    return x
