"""torch.compile, vmap and the contract of custom operators."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from dense_twin import NAMES, ON_ROWS, OPERATIONS, assert_near, draw, exact, with_gradients
from torch import Tensor
from torch.distributions import Distribution

from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels, ops


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    Distribution.set_default_validate_args(True)  # compiling switches it off for the whole process


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


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
def test_a_compiled_likelihood_has_the_same_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its usual cache confuses programs for different ATEN_CPU_CAPABILITY (torch 2.13), with numbers from nowhere.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
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
    with pytest.raises((ValueError, RuntimeError), match=r"batch shape|vmap"):
        torch.func.vmap(lambda d, w, a: LaplaceCovariance(d, w, a, validate_args=False).solve(x))(*parameters)


# --- custom operators ---


OPERATORS = {op._name: op for op in vars(ops).values() if isinstance(op, torch.library.CustomOpDef)}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_keeps_the_promises_of_torch(name: str) -> None:
    """float32 inputs, so that float64 inside is told from the dtype of the result."""
    inputs = dict(zip(NAMES, draw((3,), 20), strict=True))
    factor = LaplaceCovariance(*list(inputs.values())[2:]).factor
    values = {
        field: getattr(factor, field) for field in ("order", "rank", "vectors", "logdet") if hasattr(factor, field)
    }
    values |= {"table": kernels.sweep_table(factor, torch.float32), "row_weight": torch.tensor([1.0, -2.0, 0.5])}
    values |= {"cotangent": torch.tensor(1.0) if "vector" in name else inputs["x"] + 1}
    values |= {"mode": "solve", "keep": False, "in_rows": True, "of": "logdet"}
    differentiable = not name.endswith(("adjoint", "factor"))
    values |= {k: v.requires_grad_(differentiable) for k, v in inputs.items()}
    operator = OPERATORS[name]
    wanted = [argument.name for argument in operator._opoverload._schema.arguments]
    torch.library.opcheck(operator, tuple(values[argument] for argument in wanted))
    if "keep" in wanted:
        fixed = values | {k: inputs[k].detach() for k in ("diag", "weight", "coord")} | {"keep": True}
        torch.library.opcheck(operator, tuple(fixed[argument] for argument in wanted))
    if "of" in wanted:
        other = values | {"cotangent": torch.linspace(-1, 1, 20), "of": "inverse_diagonal"}
        torch.library.opcheck(operator, tuple(other[argument] for argument in wanted))


def test_shapes_on_the_meta_device() -> None:
    """Shape inference without memory: a covariance of meta tensors can be planned with."""
    x, loc, *parameters = (v.to("meta") for v in draw((4,), 9))
    sigma = LaplaceCovariance(*parameters)
    for name, operation in OPERATIONS.items():
        out = operation(sigma, x, loc)
        assert out.device.type == "meta"
        assert out.shape == exact(name, (4,), 9, ())[0].shape
