"""torch.compile, vmap and the contract of custom operators."""

import shutil

import pytest
import torch
from dense_twin import ON_ROWS, OPERATIONS, assert_near, draw, exact, with_gradients
from torch import Tensor

from remix.laplace import LaplaceCovariance, LaplaceNormal, ops
from remix.laplace.filters import SWEEPS


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("name", OPERATIONS)
def test_compiles_into_one_graph_forward_and_backward(name: str) -> None:
    inputs = [v.double() for v in draw((7,), 33)]

    def whole(c: LaplaceCovariance, x: Tensor, loc: Tensor) -> Tensor:
        compiled = torch.compile(
            lambda x, loc, *p: OPERATIONS[name](LaplaceCovariance(*p), x, loc), fullgraph=True, backend="aot_eager"
        )
        return compiled(x, loc, c.diag, c.weight, c.coord)

    for got, wanted in zip(with_gradients(whole, LaplaceCovariance, inputs), exact(name, (7,), 33, ()), strict=True):
        assert_near(got, wanted)


def test_compiled_with_a_covariance_made_outside() -> None:
    """The usual use: parameters fixed, rows optimised; other batch sizes and changed parameters are followed."""
    x, loc, *parameters = (v.double() for v in draw((7,), 33))
    normal = LaplaceNormal(loc, LaplaceCovariance(*parameters))
    compiled = torch.compile(lambda x: normal.log_prob(x), fullgraph=True, backend="aot_eager")
    for rows in (x, x[:3], x[:1], x):
        got = rows.clone().requires_grad_()
        value = compiled(got)
        value.sum().backward()
        assert_near(value.detach(), normal.log_prob(rows))
        assert_near(got.grad, -normal.covariance.solve(rows - loc))
    parameters[0].mul_(2)
    assert_near(compiled(x), LaplaceNormal(loc, LaplaceCovariance(*parameters)).log_prob(x))
    assert_near(normal.log_prob(x), LaplaceNormal(loc, LaplaceCovariance(*parameters)).log_prob(x))


def test_eager_still_works_after_a_first_use_under_compile() -> None:
    x, loc, *parameters = (v.double() for v in draw((7,), 33))
    normal = LaplaceNormal(loc, LaplaceCovariance(*parameters))
    compiled = torch.compile(lambda x: normal.log_prob(x), fullgraph=True, backend="aot_eager")
    first = compiled(x)
    y = x.clone().requires_grad_()
    normal.log_prob(y).sum().backward()
    assert_near(normal.log_prob(x), first)
    assert_near(y.grad, -normal.covariance.solve(x - loc))


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
def test_inductor() -> None:
    x, loc, *parameters = draw((7,), 33)
    normal = LaplaceNormal(loc, LaplaceCovariance(*parameters))
    y = x.clone().requires_grad_()
    torch.compile(lambda x: normal.log_prob(x).sum(), fullgraph=True)(y).backward()
    assert_near(y.grad, -normal.covariance.solve(x - loc))


@pytest.mark.parametrize("batch", [(), (3,)], ids=["one covariance", "three"])
@pytest.mark.parametrize("name", ON_ROWS)
def test_vmap_over_rows(name: str, batch: tuple[int, ...]) -> None:
    x, loc, *parameters = (v.double() for v in draw((4, 2, 3), 9, batch))
    sigma = LaplaceCovariance(*parameters)
    wanted = OPERATIONS[name](sigma, x, loc)

    def one(x: Tensor) -> Tensor:
        return OPERATIONS[name](sigma, x, loc)

    assert_near(torch.func.vmap(one)(x), wanted)
    assert_near(torch.func.vmap(torch.func.vmap(one))(x), wanted)
    assert_near(torch.func.vmap(one, in_dims=1, out_dims=1)(x), wanted)


def test_vmap_is_differentiable() -> None:
    x, loc, *parameters = (v.double() for v in draw((4, 3), 9))
    normal = LaplaceNormal(loc, LaplaceCovariance(*parameters))
    rows = x.clone().requires_grad_()
    torch.func.vmap(normal.log_prob)(rows).sum().backward()
    assert_near(rows.grad, -normal.covariance.solve(x - loc))


def test_vmap_over_parameters_is_refused_with_advice() -> None:
    x, _, *parameters = (v.double() for v in draw((2,), 5, (3,)))
    with pytest.raises((ValueError, RuntimeError), match="batch shape|vmap"):
        torch.func.vmap(lambda d, w, a: LaplaceCovariance(d, w, a, validate_args=False).solve(x))(*parameters)


# --- custom operators ---


def operator_inputs(grad: bool) -> tuple[list[Tensor], list[Tensor]]:
    """float32 inputs (so that float64 inside is told from the dtype of the result), and the tensors of the factor."""
    inputs = draw((3,), 20)
    factor = LaplaceCovariance(*inputs[2:]).factor
    tensors = [*factor.tensors, factor.table(torch.float32)]
    return [v.requires_grad_() if grad else v for v in inputs], tensors


def test_opcheck() -> None:
    (x, loc, *p), factor = operator_inputs(grad=True)
    (x0, loc0, *p0), _ = operator_inputs(grad=False)
    weights = torch.tensor([1.0, -2.0, 0.5])
    torch.library.opcheck(ops.factor_op, tuple(p0))
    for mode in SWEEPS:
        torch.library.opcheck(ops.filter_op, (x, *p, *factor, mode))
        torch.library.opcheck(ops.filter_adjoint_op, (x0, x0 * 2, x0 + 1, *factor, mode))
    torch.library.opcheck(ops.nll_op, (x, loc, *p, *factor, False))
    torch.library.opcheck(ops.nll_op, (x, loc, *p0, *factor, True))
    torch.library.opcheck(ops.nll_adjoint_op, (x0, loc0, *factor, weights))
    for op, of in ((ops.logdet_op, "logdet"), (ops.inverse_diagonal_op, "inverse_diagonal")):
        torch.library.opcheck(op, (*p, *factor[:4]))
        torch.library.opcheck(ops.vector_adjoint_op, (op(*p0, *factor[:4]), *factor[:4], of))


def test_shapes_on_the_meta_device() -> None:
    """Shape inference without memory: a covariance of meta tensors can be planned with."""
    x, loc, *parameters = (v.to("meta") for v in draw((4,), 9))
    sigma = LaplaceCovariance(*parameters)
    for name, operation in OPERATIONS.items():
        out = operation(sigma, x, loc)
        assert out.device.type == "meta"
        assert out.shape == exact(name, (4,), 9, ())[0].shape
