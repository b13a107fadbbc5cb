"""A device that is not the processor, for machines without one: it computes on the processor, yet forgives nothing.

A tensor on it meets only tensors on it, as on a graphics card; what torch forgives there is forgiven here (numbers
without axes, indices). A generator draws only on its own device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("far")
FAR = torch.device("far", 0)
_MOVING = {"aten::_to_copy", "aten::copy_"}
_INDEXING = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


class FarTensor(Tensor):
    """Holds its numbers in `near`, a tensor of the processor."""

    near: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, near: Tensor) -> FarTensor:
        assert type(near) is Tensor, type(near)
        found = Tensor._make_wrapper_subclass(
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=FAR,
        )
        found.near = near
        return found

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _FarMode(TorchDispatchMode):
    """Makes what is asked for on the far device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _empty(size: Any, stride: Any, dtype: Any = None, **_: Any) -> FarTensor:
    return FarTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    (target.near if isinstance(target, FarTensor) else target).copy_(
        source.near if isinstance(source, FarTensor) else source
    )
    return target


# torch.tensor([1, 2], device=...) and x[[1, 2]] go to a device by a way that no Python mode sees.
_KERNELS = torch.library.Library("aten", "IMPL")
_KERNELS.impl("empty_strided", _empty, "PrivateUse1")
_KERNELS.impl("_copy_from", _copy_from, "PrivateUse1")


@contextmanager
def far_device() -> Iterator[torch.device]:
    """Within it the device can be used."""
    with _FarMode():
        yield FAR


def _is_far(device: Any) -> bool:
    return device is not None and torch.device(device).type == "far"


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    some = any(isinstance(tensor, FarTensor) for tensor in tensors)
    wanted = kwargs.get("device")
    name = func._schema.name
    if not some and not _is_far(wanted):
        return func(*args, **kwargs)
    if some and name not in _MOVING:
        for tensor in _strict(name, args, tensors):
            if not isinstance(tensor, FarTensor) and tensor.dim():
                places = [(tuple(each.shape), str(each.device)) for each in tensors]
                raise RuntimeError(f"{name}: tensors on far and cpu, {places}")
    far = _is_far(wanted) if wanted is not None else some and (name != "aten::copy_" or isinstance(args[0], FarTensor))
    for leaf in leaves:
        if isinstance(leaf, torch.Generator) and far:
            raise RuntimeError(f"{name}: a generator of {leaf.device} cannot draw on far")
    near_args, near_kwargs = tree_map(lambda leaf: leaf.near if isinstance(leaf, FarTensor) else leaf, (args, kwargs))
    if _is_far(wanted):
        near_kwargs["device"] = torch.device("cpu")
    near_kwargs.pop("pin_memory", None)
    result = func(*near_args, **near_kwargs)
    if not far:
        return args[0] if name == "aten::copy_" else result
    result = tree_map(lambda leaf: FarTensor(leaf) if type(leaf) is Tensor else leaf, result)
    return return_and_correct_aliasing(func, args, kwargs, result)


def _strict(name: str, args: Any, tensors: list[Tensor]) -> list[Tensor]:
    """The tensors that must be on one device: indices may be of the processor."""
    if name in _INDEXING and isinstance(args[0], FarTensor):
        return [args[0], *(leaf for leaf in tree_leaves(args[2:]) if isinstance(leaf, Tensor))]
    return tensors
