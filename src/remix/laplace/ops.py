"""Custom operators: opaque to torch.compile, differentiable in closed form, batched by vmap over rows.

Each takes the parameters (for their gradients only) and the tensors of their `Factor` (for the work). One parameter
set (D,), rows x (B, D); leading batch shapes are folded by `LaplaceCovariance`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from remix.laplace import adjoint, kernels
from remix.laplace.factor import SWEEPS, TRANSPOSE, WHITEN, WHITEN_T, Factor, sweeps_of
from remix.laplace.validate import compute_dtype

__all__ = ["factor_op", "filter_op", "inverse_diagonal_op", "logdet_op", "nll_op"]

LOG_2PI = math.log(2 * math.pi)


@torch.library.custom_op("remix::laplace_factor", mutates_args=())
def factor_op(diag: Tensor, weight: Tensor, coord: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(order, rank, vectors, logdet) of a `Factor`. Not differentiable: the other operators carry the gradients."""
    order, rank, vectors = kernels.factorise(diag, weight, coord)
    return order, rank, vectors, vectors[5].log().sum()


@factor_op.register_fake
def _(diag: Tensor, weight: Tensor, coord: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    size = diag.shape[0]
    return (
        diag.new_empty(size, dtype=torch.int64),
        diag.new_empty(size, dtype=torch.int32),
        diag.new_empty(10, size, dtype=torch.float64),
        diag.new_empty((), dtype=torch.float64),
    )


# --- linear operations on rows -------------------------------------------------------------------------------------


@torch.library.custom_op("remix::laplace_filter", mutates_args=())
def filter_op(
    x: Tensor, diag: Tensor, weight: Tensor, coord: Tensor,
    order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor, table: Tensor, mode: str,
) -> Tensor:  # fmt: skip
    """One of `factor.SWEEPS` applied to rows x (B, D)."""
    out = kernels.filter_rows(x, None, order, rank, sweeps_of(table, *SWEEPS[mode]))[0]
    assert out is not None
    return out


@torch.library.custom_op("remix::laplace_filter_adjoint", mutates_args=())
def filter_adjoint_op(
    x: Tensor, cotangent: Tensor,
    order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor, table: Tensor, mode: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Parameter gradients of `filter_op`."""
    factor = Factor(order, rank, vectors, logdet, {table.dtype: table})
    return adjoint.filter_adjoint(x, cotangent, factor, mode)


def _rows_or_empty(x: Tensor, rows: bool) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device) if rows else x.new_empty(0)


def _three_like(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second, third = (x.new_empty(x.shape[-1], dtype=torch.float64) for _ in range(3))
    return first, second, third


filter_op.register_fake(lambda x, *rest: _rows_or_empty(x, True))
filter_adjoint_op.register_fake(lambda x, *rest: _three_like(x))


def _filter_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.mode = inputs
    ctx.save_for_backward(*tensors)


def _filter_backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
    x, diag, weight, coord, *factor = ctx.saved_tensors
    grads: list[Any] = [None] * 10
    if ctx.needs_input_grad[0]:
        grads[0] = filter_op(cotangent, diag, weight, coord, *factor, TRANSPOSE[ctx.mode])
    if any(ctx.needs_input_grad[1:4]):
        parameters = filter_adjoint_op(x, cotangent, *factor, ctx.mode)
        grads[1:4] = [g.to(p.dtype) for g, p in zip(parameters, (diag, weight, coord), strict=True)]
    return tuple(grads)


filter_op.register_autograd(_filter_backward, setup_context=_filter_context)


@filter_op.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
    _only_rows(in_dims)
    x = x.movedim(in_dims[0], 0)
    return filter_op(x.flatten(0, 1), *rest).unflatten(0, x.shape[:2]), 0


def _only_rows(in_dims: tuple[Any, ...]) -> None:
    if any(dim is not None for dim in in_dims[1:]):
        raise ValueError("vmap over the parameters is not supported: give them a leading batch shape instead")


# --- negative log-likelihood ----------------------------------------------------------------------------------------


@torch.library.custom_op("remix::laplace_nll", mutates_args=())
def nll_op(
    x: Tensor, loc: Tensor, diag: Tensor, weight: Tensor, coord: Tensor,
    order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor, table: Tensor, keep: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(-log N(x; loc, Sigma) per row (B,), its gradient in x (B, D) if ``keep``, else empty)."""
    sweeps = sweeps_of(table, WHITEN, WHITEN_T) if keep else sweeps_of(table, WHITEN)
    g, squares = kernels.filter_rows(x, loc, order, rank, sweeps, squares=True, keep=keep)
    assert squares is not None
    nll = 0.5 * (squares + (logdet + x.shape[-1] * LOG_2PI))
    return nll.to(x.dtype), x.new_empty(0) if g is None else g


@torch.library.custom_op("remix::laplace_nll_adjoint", mutates_args=())
def nll_adjoint_op(
    x: Tensor, loc: Tensor, order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor, table: Tensor,
    row_weight: Tensor, in_rows: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of sum_b t_b NLL_b: in x (B, D) if ``in_rows``, else empty; in diag, weight, coord and loc, (4, D)."""
    factor = Factor(order, rank, vectors, logdet, {table.dtype: table})
    in_x, parameters = adjoint.nll_adjoint(x, loc, factor, row_weight, in_rows)
    return in_x if in_rows and in_x is not None else x.new_empty(0), parameters


nll_op.register_fake(lambda x, *rest: (x.new_empty(x.shape[0]), _rows_or_empty(x, rest[-1])))
nll_adjoint_op.register_fake(
    lambda x, *rest: (_rows_or_empty(x, rest[-1]), x.new_empty(4, x.shape[-1], dtype=torch.float64))
)


def _nll_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, keep = inputs
    ctx.set_materialize_grads(False)  # no zeros of the size of x for the unused cotangent of the second output
    ctx.save_for_backward(*tensors)
    # Handed over to the first backward pass, which may then scale it in place: saves one copy of x.
    ctx.gradient = output[1].detach() if keep else None


def _nll_backward(ctx: Any, row_weight: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    x, loc, diag, weight, coord, *factor = ctx.saved_tensors
    needed = ctx.needs_input_grad
    grads: list[Any] = [None] * 11
    if row_weight is None:
        return tuple(grads)
    gradient, ctx.gradient = ctx.gradient, None
    twice = torch.is_grad_enabled()  # the gradients in x and loc will be differentiated again
    if any(needed[2:5]):
        in_x, parameters = nll_adjoint_op(x, loc, *factor, row_weight, bool(needed[0] and not twice))
        grads[2:5] = [g.to(p.dtype) for g, p in zip(parameters, (diag, weight, coord), strict=False)]
        if not twice:
            grads[0] = in_x if needed[0] else None
            grads[1] = parameters[3].to(loc.dtype) if needed[1] else None
            return tuple(grads)
    if gradient is None or twice:
        in_x = row_weight.unsqueeze(-1) * filter_op(x - loc, diag, weight, coord, *factor, "solve")
    else:
        in_x = _scale_rows(gradient, row_weight)
    grads[0] = in_x if needed[0] else None
    grads[1] = -in_x.sum(0) if needed[1] else None
    return tuple(grads)


def _scale_rows(gradient: Tensor, row_weight: Tensor) -> Tensor:
    """t_b g_b, in place: the tensor is ours. Under tracing (tensor subclasses) and vmap as a plain product."""
    if type(gradient) is not Tensor or type(row_weight) is not Tensor:
        return row_weight.unsqueeze(-1) * gradient
    if row_weight.device.type == "cpu":
        try:
            all_one = bool((row_weight == 1).all())
        except RuntimeError:  # batched cotangents (is_grads_batched) have no one value, and more than one result
            return row_weight.unsqueeze(-1) * gradient
        if all_one:
            return gradient
    return gradient.mul_(row_weight.unsqueeze(-1))


nll_op.register_autograd(_nll_backward, setup_context=_nll_context)


@nll_op.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], x: Tensor, *rest: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, Any]]:
    _only_rows(in_dims)
    x = x.movedim(in_dims[0], 0)
    nll, g = nll_op(x.flatten(0, 1), *rest)
    batch = x.shape[:2]
    return (nll.unflatten(0, batch), g.unflatten(0, batch) if rest[-1] else g), (0, 0 if rest[-1] else None)


# --- functions of the parameters alone -----------------------------------------------------------------------------


@torch.library.custom_op("remix::laplace_logdet", mutates_args=())
def logdet_op(
    diag: Tensor, weight: Tensor, coord: Tensor, order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor
) -> Tensor:
    """log det Sigma, a scalar in the computing dtype of diag."""
    return logdet.to(compute_dtype(diag.dtype), copy=True)


@torch.library.custom_op("remix::laplace_inverse_diagonal", mutates_args=())
def inverse_diagonal_op(
    diag: Tensor, weight: Tensor, coord: Tensor, order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor
) -> Tensor:
    """diag(Sigma^-1), (D,), in the dtype of diag."""
    S, G, f = vectors[5], vectors[6], vectors[9]
    return (1 / S + G.square() * f).index_select(0, rank).to(diag.dtype)


@torch.library.custom_op("remix::laplace_vector_adjoint", mutates_args=())
def vector_adjoint_op(
    cotangent: Tensor, order: Tensor, rank: Tensor, vectors: Tensor, logdet: Tensor, of: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameter gradients of "logdet" (scalar cotangent) or "inverse_diagonal" (cotangent (D,))."""
    factor = Factor(order, rank, vectors, logdet)
    if of == "logdet":
        diag, weight, coord = (cotangent.double() * g for g in adjoint.logdet_adjoint(factor))
        return diag, weight, coord
    return adjoint.inverse_diagonal_adjoint(factor, cotangent)


logdet_op.register_fake(lambda diag, *rest: diag.new_empty((), dtype=compute_dtype(diag.dtype)))
inverse_diagonal_op.register_fake(lambda diag, *rest: torch.empty_like(diag))
vector_adjoint_op.register_fake(lambda cotangent, order, *rest: _three_like(order))


def _vector_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _vector_backward(ctx: Any, cotangent: Tensor, of: str) -> tuple[Any, ...]:
    *parameters, order, rank, vectors, logdet = ctx.saved_tensors
    grads = vector_adjoint_op(cotangent, order, rank, vectors, logdet, of)
    return *(g.to(p.dtype) for g, p in zip(grads, parameters, strict=True)), None, None, None, None


logdet_op.register_autograd(lambda ctx, t: _vector_backward(ctx, t, "logdet"), setup_context=_vector_context)
inverse_diagonal_op.register_autograd(
    lambda ctx, t: _vector_backward(ctx, t, "inverse_diagonal"), setup_context=_vector_context
)
