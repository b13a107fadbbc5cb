"""Checks of arguments, with errors that name the argument, its shape and what was expected."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "broadcast", "check_parameters", "check_rows", "checks_possible", "compute_dtype", "require_finite",
    "require_positive",
]  # fmt: skip


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float16 and bfloat16 are computed in float32; float32 and float64 in themselves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def checks_possible(*tensors: Tensor) -> bool:
    """Whether values may be looked at: not while compiling, inside vmap, or of meta tensors."""
    if torch.compiler.is_compiling():
        return False
    return not any(t.is_meta or torch._C._functorch.is_batchedtensor(t) for t in tensors)


def broadcast(**shapes: torch.Size) -> torch.Size:
    """The common shape, or an error that names all of them."""
    try:
        return torch.Size(torch.broadcast_shapes(*shapes.values()))
    except RuntimeError as error:
        named = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"leading shapes do not broadcast: {named}") from error


def describe(tensor: Tensor) -> str:
    """Shape, dtype and device, for messages."""
    return f"shape {tuple(tensor.shape)}, {tensor.dtype}, {tensor.device}"


def require_float_vector(name: str, tensor: object) -> Tensor:
    """A floating-point tensor of shape (..., D), D >= 1, or an error."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch tensor of shape (..., D), got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {describe(tensor)}: convert it with .float()")
    if tensor.dim() == 0 or tensor.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (..., D) with D >= 1, got {describe(tensor)}")
    return tensor


def require_finite(name: str, tensor: Tensor) -> None:
    """Raises if a value is NaN or infinite, saying which. Where none is, in one pass and without a mask."""
    if not torch.isfinite(tensor.sum()) and (bad := ~torch.isfinite(tensor)).any():
        where = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{name} ({describe(tensor)}) must be finite, but has {int(bad.sum())} NaN or infinite "
            f"values, the first at index {where}"
        )


def require_positive(name: str, tensor: Tensor) -> None:
    """Raises if a value is not positive, saying which."""
    if not bool((tensor > 0).all()):
        where = tuple((~(tensor > 0)).nonzero()[0].tolist())
        raise ValueError(
            f"{name} ({describe(tensor)}) must be positive, but is {float(tensor[where]):g} at index {where}"
        )


def require_alike(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Same device and same computing dtype."""
    if tensor.device != other.device:
        raise ValueError(
            f"{name} is on {tensor.device} but {other_name} is on {other.device}: move one of them with .to(device)"
        )
    own, wanted = compute_dtype(tensor.dtype), compute_dtype(other.dtype)
    if own != wanted:
        raise ValueError(
            f"{name} is {tensor.dtype} but {other_name} is {other.dtype}: type {name}.to({wanted}), "
            f"or .to({own}) on {other_name}"
        )


def check_parameters(diag: Tensor, weight: Tensor, coord: Tensor, values: bool) -> None:
    """The three vectors of a covariance: floating point, last dimension equal, alike; if ``values``, d > 0, finite."""
    for name, vector in (("diag", diag), ("weight", weight), ("coord", coord)):
        require_float_vector(name, vector)
        require_alike(name, vector, "diag", diag)
        if vector.shape[-1] != diag.shape[-1]:
            raise ValueError(
                f"{name} (shape {tuple(vector.shape)}) has {vector.shape[-1]} coordinates but diag (shape "
                f"{tuple(diag.shape)}) has {diag.shape[-1]}"
            )
        if vector.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(vector.shape)}: there is no covariance in an empty batch")
    broadcast(diag=diag.shape, weight=weight.shape, coord=coord.shape)
    if values and checks_possible(diag, weight, coord):
        for name, vector in (("diag", diag), ("weight", weight), ("coord", coord)):
            require_finite(name, vector)
        require_positive("diag", diag)
        dtype = compute_dtype(diag.dtype)
        require_finite("the variance diag + weight^2", diag.to(dtype) + weight.to(dtype).square())


def check_rows(name: str, x: object, dim: int, like: Tensor, owner: str = "the LaplaceCovariance") -> Tensor:
    """Rows (..., D) that go with parameters ``like`` of ``owner``."""
    rows = require_float_vector(name, x)
    if rows.shape[-1] != dim:
        raise ValueError(f"{name} must have shape (..., {dim}), got {describe(rows)}")
    require_alike(name, rows, owner, like)
    return rows
