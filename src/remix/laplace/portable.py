"""What the objects of this package share: another device or dtype, and a state of plain tensors to save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from remix.laplace.basis import Dct2

if TYPE_CHECKING:
    from typing_extensions import Self

    from remix.laplace.basis import Basis

__all__ = ["Portable", "basis_of", "basis_state", "copies", "require_names"]


class Portable:
    """Something made of tensors that moves and converts as one tensor does."""

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """On another device or in another dtype, arguments as those of `torch.Tensor.to`."""
        raise NotImplementedError

    def double(self) -> Self:
        """In float64."""
        return self.to(torch.float64)

    def float(self) -> Self:
        """In float32."""
        return self.to(torch.float32)


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached tensors with memory of their own: every writer of files takes them."""
    return {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}


def basis_state(basis: Basis | None) -> dict[str, Tensor]:
    """A basis as tensors: none, or the layout of its DCT.

    Raises:
        TypeError: another basis.
    """
    if basis is None:
        return {}
    if not isinstance(basis, Dct2):
        raise TypeError(f"a state knows the basis Dct2 alone, not {type(basis).__name__}: save its tensors yourself")
    return {"dct": torch.tensor(basis.layout)}


def basis_of(state: Mapping[str, Tensor]) -> Dct2 | None:
    """The basis that `basis_state` was given."""
    return Dct2(tuple(state["dct"].tolist())) if "dct" in state else None


def require_names(kind: str, state: Mapping[str, Tensor], names: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Raises a ValueError unless ``state`` has all of ``names``, and nothing but them and ``optional``."""
    if not set(names) <= set(state) <= {*names, *optional}:
        found = ", ".join(map(str, state)) or "nothing"
        raise ValueError(f"{kind}.from_state_dict needs {', '.join(names)}, got {found}: save {kind}.state_dict()")
