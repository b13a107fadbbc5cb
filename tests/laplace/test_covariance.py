"""Every operation and its gradients in x, loc, diag, weight and coord against a dense float64 twin."""

import pytest
import torch
from dense_twin import (
    ON_PARAMETERS,
    ON_ROWS,
    OPERATIONS,
    TOLERANCE,
    DenseTwin,
    assert_all_near,
    assert_near,
    draw,
    exact,
    with_gradients,
)
from torch import Tensor

from remix.laplace import LaplaceCovariance, kernels

DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
ROWS = [
    ((), 1), ((1,), 1), ((0,), 2), ((7,), 2), ((16,), 3), ((17,), 15), ((33,), 16), ((2, 3), 17), ((2, 0), 31),
    ((200,), 40), ((7,), 63), ((16,), 64), ((33,), 65), ((), 257), ((1,), 1000), ((17,), 1000),
]  # fmt: skip
# Leading shape of x, batch shape of the parameters.
BATCHES = [
    ((), (3,)), ((3,), (3,)), ((4, 1), (3,)), ((5, 3), (3,)), ((0, 3), (3,)), ((2, 5), (2, 1)), ((5,), (2, 1)),
    ((1,), (2, 3)), ((4, 2, 3), (2, 3)), ((4, 2, 1), (1, 3)), ((), (1,)),
]  # fmt: skip


@DTYPES
@pytest.mark.parametrize(("lead", "dim"), ROWS)
@pytest.mark.parametrize("name", ON_ROWS)
def test_operations_on_rows_are_the_dense_ones(
    name: str, lead: tuple[int, ...], dim: int, dtype: torch.dtype, path: str
) -> None:
    got = with_gradients(OPERATIONS[name], LaplaceCovariance, [v.to(dtype) for v in draw(lead, dim)])
    assert {v.dtype for v in got} == {dtype}
    assert_all_near(got, exact(name, lead, dim, ()))


@DTYPES
@pytest.mark.parametrize("dim", [1, 2, 3, 17, 64, 257, 1000])
@pytest.mark.parametrize("name", ON_PARAMETERS)
def test_functions_of_the_parameters_are_the_dense_ones(name: str, dim: int, dtype: torch.dtype, path: str) -> None:
    got = with_gradients(OPERATIONS[name], LaplaceCovariance, [v.to(dtype) for v in draw((), dim)])
    assert {v.dtype for v in got} == {dtype}
    assert_all_near(got, exact(name, (), dim, ()))


@pytest.mark.parametrize(("lead", "batch"), BATCHES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_batches_of_covariances_are_the_dense_ones(name: str, lead: tuple[int, ...], batch: tuple[int, ...]) -> None:
    got = with_gradients(OPERATIONS[name], LaplaceCovariance, [v.double() for v in draw(lead, 5, batch)])
    assert_all_near(got, exact(name, lead, 5, batch))


def test_parameters_broadcast_against_each_other() -> None:
    x, loc, diag, weight, coord = (v.double() for v in draw((3,), 6))
    inputs = [x, loc, torch.stack([diag, 2 * diag])[:, None], torch.stack([weight, -2 * weight, weight / 3]), coord]
    for operation in OPERATIONS.values():
        got, wanted = (with_gradients(operation, kind, inputs) for kind in (LaplaceCovariance, DenseTwin))
        assert_all_near(got, wanted)


LAYOUTS = {
    "strided": lambda v: torch.stack([v, torch.full_like(v, torch.nan)], -1).flatten(-2)[..., ::2],
    "transposed": lambda v: v.mT.contiguous().mT if v.dim() > 1 else v,
    "offset": lambda v: torch.cat([torch.full_like(v[..., :1], torch.nan), v], -1)[..., 1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_any_memory_layout_gives_the_dense_result(name: str, layout: str, path: str) -> None:
    inputs = [v.double() for v in draw((7,), 65)]
    views = [LAYOUTS[layout](v) for v in inputs]
    assert all(torch.equal(v, w) for v, w in zip(views, inputs, strict=True))
    assert_all_near(with_gradients(OPERATIONS[name], LaplaceCovariance, views), exact(name, (7,), 65, ()))


@pytest.mark.parametrize("name", ON_ROWS)
def test_expanded_inputs_give_the_same_bits(name: str, path: str) -> None:
    x, _, _, weight, coord = (v.double() for v in draw((), 33))
    one = torch.tensor([0.7], dtype=torch.float64)
    tight = [x.repeat(5, 1), one.repeat(33), one.repeat(33), weight, coord]
    wide = [x.expand(5, 33), one.expand(33), one.expand(33), weight, coord]
    operation = OPERATIONS[name]
    for got, wanted in zip(
        with_gradients(operation, LaplaceCovariance, wide), with_gradients(operation, LaplaceCovariance, tight),
        strict=True,
    ):  # fmt: skip
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype, path: str) -> None:
    """Rows, or rows and parameters, of 16 bits: as accurate as float32, gradients in the dtype of each input."""
    rounded = [v.to(dtype) for v in draw((7,), 65)]
    wanted = with_gradients(OPERATIONS[name], LaplaceCovariance, [v.double() for v in rounded])
    rows_only = [rounded[0], *(v.float() for v in rounded[1:])]
    got = with_gradients(OPERATIONS[name], LaplaceCovariance, rows_only)
    assert got[0].dtype == torch.float32
    assert_near(got[0], wanted[0], what="value")
    for leaf, mine, exact_gradient in zip(rows_only, got[1:], wanted[1:], strict=True):
        assert mine.dtype == leaf.dtype
        assert_near(mine, exact_gradient, 2 * torch.finfo(leaf.dtype).eps + TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", [*ON_ROWS, "logdet"])
def test_half_precision_parameters_have_float32_results_and_half_precision_gradients(name: str) -> None:
    rounded = [v.half() for v in draw((7,), 65)]
    wanted = with_gradients(OPERATIONS[name], LaplaceCovariance, [v.double() for v in rounded])
    got = with_gradients(OPERATIONS[name], LaplaceCovariance, rounded)
    assert got[0].dtype == torch.float32
    assert_near(got[0], wanted[0])
    for mine, exact_gradient in zip(got[1:], wanted[1:], strict=True):
        assert mine.dtype == torch.float16
        assert_near(mine, exact_gradient, 2e-3)


def test_logdet_of_half_precision_parameters_does_not_overflow() -> None:
    big = LaplaceCovariance(torch.full((20_000,), 1e4).half(), torch.zeros(20_000).half(), torch.zeros(20_000).half())
    assert_near(big.logdet(), 20_000 * torch.tensor(1e4).log())


@pytest.mark.parametrize("dim", [37, 5003])
@DTYPES
def test_paths_agree(dim: int, dtype: torch.dtype) -> None:
    inputs = [v.to(dtype) for v in draw((5,), dim)]
    paths = [p for p in kernels.PATHS if p != "native" or kernels.native()]
    if dim > 2000:
        paths.remove("reference")  # one position after the other, in Python
    for operation in OPERATIONS.values() if dim < 1000 else ON_ROWS.values():
        results = []
        for path in paths:
            with kernels.use(path):
                results.append(with_gradients(operation, LaplaceCovariance, inputs))
        for other in results[1:]:
            assert_all_near(other, results[0])


def test_a_bad_row_spoils_no_other(path: str) -> None:
    """Without validation NaN and Inf stay in their row, on both sides of every tile border."""
    x, loc, *parameters = (v.double() for v in draw((33,), 40))
    bad = x.clone()
    bad[5, 7], bad[16, 0], bad[32, 39] = torch.nan, torch.inf, -torch.inf
    good = torch.ones(33, dtype=torch.bool)
    good[[5, 16, 32]] = False
    covariance = LaplaceCovariance(*parameters, validate_args=False)
    for name, operation in ON_ROWS.items():
        clean, spoiled = operation(covariance, x, loc), operation(covariance, bad, loc)
        assert torch.equal(clean[good], spoiled[good]), name
        assert not torch.isfinite(spoiled[~good]).flatten(1).all(1).any() if spoiled.dim() > 1 else True, name
        if spoiled.dim() == 1:
            assert not torch.isfinite(spoiled[~good]).any()


def test_tensors_give_the_covariance_back() -> None:
    parameters = dict(zip(("diag", "weight", "coord"), draw((), 9)[2:], strict=True))
    covariance = LaplaceCovariance(**{k: v.requires_grad_() for k, v in parameters.items()})
    saved = covariance.tensors()
    assert list(saved) == list(parameters)
    assert all(torch.equal(saved[k], parameters[k]) and not saved[k].requires_grad for k in saved)
    assert torch.equal(LaplaceCovariance(**saved).to_dense(), covariance.to_dense())


def test_it_tells_its_shape() -> None:
    covariance = LaplaceCovariance(*draw((), 4, (2, 3))[2:])
    assert (covariance.dim, covariance.batch_shape, covariance.shape) == (4, (2, 3), (2, 3, 4, 4))
    assert "dim=4" in repr(covariance)
    assert "(2, 3)" in repr(covariance)


def test_inputs_are_never_written_to(path: str) -> None:
    inputs = [v.double() for v in draw((17,), 33)]
    before: list[Tensor] = [v.clone() for v in inputs]
    for operation in OPERATIONS.values():
        with_gradients(operation, LaplaceCovariance, inputs)
    assert all(torch.equal(v, w) for v, w in zip(inputs, before, strict=True))
