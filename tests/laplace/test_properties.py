"""Invariances, and whatever hypothesis finds: ties, huge gaps, zero weights, tiny and huge noise, D = 1 and 2."""

import math

import torch
from dense_twin import OPERATIONS, DenseTwin, assert_near, draw
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remix.laplace import LaplaceCovariance, kernels

GAPS = st.sampled_from([0.0, 1e-300, 1e-9, 1e-3, 0.3, 1.0, 7.0, 800.0, 1e30])
WEIGHTS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.37, -2.5, 1e-8, 1e3, -1e5])
NOISE = st.sampled_from([1e-12, 1e-6, 0.1, 1.0, 3.0, 1e6, 1e12])
VALUES = st.floats(-3, 3, width=32)


@st.composite
def cases(draw_from: st.DrawFn) -> tuple[LaplaceCovariance, Tensor]:
    """A covariance and three rows."""
    size = draw_from(st.one_of(st.integers(1, 3), st.integers(4, 40)))

    def vector(of: st.SearchStrategy[float], length: int = size) -> Tensor:
        return torch.tensor(draw_from(st.lists(of, min_size=length, max_size=length)), dtype=torch.float64)

    order = torch.tensor(draw_from(st.permutations(range(size))))
    coord = vector(GAPS).cumsum(0)[order] - draw_from(st.sampled_from([0.0, 5.0]))
    x = vector(VALUES, 3 * size).view(3, size)
    return LaplaceCovariance(vector(NOISE), vector(WEIGHTS), coord), x


def close(got: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> bool:
    return bool(torch.isfinite(got).all()) and float((got - wanted).norm()) <= tolerance * float(wanted.norm() + 1e-300)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_identities_hold_in_hard_cases(case: tuple[LaplaceCovariance, Tensor]) -> None:
    """Without a dense oracle (it fails here): what must hold between the operations, on every path."""
    sigma, x = case
    values = []
    for path in kernels.PATHS:
        if path == "native" and kernels.native() is None:
            continue
        with kernels.use(path):
            one = LaplaceCovariance(**sigma.tensors())
            assert close(one.matvec(x), x @ sigma.to_dense(), 1e-10)
            z = torch.randn(3, one.dim, dtype=torch.float64)
            draws = one.unwhiten(z)
            # Backward stable, not exact: the noise of the largest variance is amplified by the smallest.
            spread = float(one.diagonal().max() / one.diag.min())
            assert close(one.whiten(draws), z, 1e-13 * max(1, spread))
            assert close(one.whiten(x).square().sum(1), (x * one.solve(x)).sum(1), 1e-9)
            assert (one.inverse_diagonal() >= 1 / one.diagonal() * (1 - 1e-12)).all()
            assert (one.inverse_diagonal() <= 1 / one.diag * (1 + 1e-12)).all()
            floor, roof = one.diag.log().sum(), one.diagonal().log().sum()
            assert floor - 1e-9 * abs(floor) - 1e-9 <= one.logdet() <= roof + 1e-9 * abs(roof) + 1e-9
            nll = one.nll(x, torch.zeros(one.dim, dtype=torch.float64))
            values.append((one.logdet(), one.solve(x), nll, one.inverse_diagonal()))
    for other in values[1:]:
        for got, wanted in zip(other, values[0], strict=True):
            assert close(got, wanted, 1e-10)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_gradients_are_finite_in_hard_cases(case: tuple[LaplaceCovariance, Tensor]) -> None:
    sigma, x = case
    for name, operation in OPERATIONS.items():
        leaves = [v.clone().requires_grad_() for v in sigma.tensors().values()]
        rows = x.clone().requires_grad_()
        out = operation(LaplaceCovariance(*leaves), rows, torch.zeros(sigma.dim, dtype=torch.float64))
        grads = torch.autograd.grad(out.sum(), (rows, *leaves), allow_unused=True, materialize_grads=True)
        assert all(torch.isfinite(g).all() for g in grads), name


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([torch.float32, torch.float64]))
def test_likelihood_falls_with_distance(case: tuple[LaplaceCovariance, Tensor], dtype: torch.dtype) -> None:
    sigma, x = case
    one = LaplaceCovariance(*(v.to(dtype).clamp(-1e30, 1e30) for v in sigma.tensors().values()))
    rows = x.to(dtype)
    zero = torch.zeros(one.dim, dtype=dtype)
    assert (one.nll(2 * rows, zero) >= one.nll(rows, zero)).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0, 5.0]))
def test_agrees_with_the_dense_twin_at_ties(size: int, seed: int, spacing: float) -> None:
    """Moderate noise, coordinates on a coarse grid: many ties, where dense float64 is still right."""
    g = torch.Generator().manual_seed(seed)
    diag = 0.1 + torch.rand(size, generator=g, dtype=torch.float64)
    weight = torch.randn(size, generator=g, dtype=torch.float64)
    coord = torch.randint(-3, 4, (size,), generator=g) * torch.tensor(spacing, dtype=torch.float64)
    x = torch.randn(3, size, generator=g, dtype=torch.float64)
    for name, operation in OPERATIONS.items():
        if name not in ("rescale", "to_dense"):
            got, wanted = (operation(kind(diag, weight, coord), x, weight) for kind in (LaplaceCovariance, DenseTwin))
            assert_near(got, wanted, 1e-11, name)


# --- invariances, with gradients ---


def likelihood(inputs: list[Tensor]) -> list[Tensor]:
    """[NLL per row, gradients in x, loc, diag, weight, coord]."""
    leaves = [v.clone().requires_grad_() for v in inputs]
    x, loc, *parameters = leaves
    value = LaplaceCovariance(*parameters).nll(x, loc)
    return [value.detach(), *torch.autograd.grad((value * torch.arange(1.0, len(value) + 1)).sum(), leaves)]


def test_permutation_of_the_coordinates(path: str) -> None:
    inputs = [v.double() for v in draw((4,), 50)]
    order = torch.randperm(50)
    value, *grads = likelihood(inputs)
    moved, *moved_grads = likelihood([v[..., order] for v in inputs])
    assert_near(moved, value, 1e-14)
    for got, wanted in zip(moved_grads, grads, strict=True):
        assert_near(got, wanted[..., order], 1e-13)


def test_shift_and_reflection_of_the_coordinates_and_sign_of_the_weights(path: str) -> None:
    x, loc, diag, weight, coord = inputs = [v.double() for v in draw((4,), 50)]
    value, in_x, in_loc, in_diag, in_weight, in_coord = likelihood(inputs)
    for changed, sign_weight, sign_coord in (
        ([x, loc, diag, weight, coord + 100], 1, 1),
        ([x, loc, diag, weight, -coord], 1, -1),
        ([x, loc, diag, -weight, coord], -1, 1),
    ):
        got = likelihood(changed)
        wanted = [value, in_x, in_loc, in_diag, sign_weight * in_weight, sign_coord * in_coord]
        for mine, theirs in zip(got, wanted, strict=True):
            assert_near(mine, theirs, 1e-11)


def test_ties_are_taken_in_the_order_of_the_coordinates(path: str) -> None:
    """A stable sort decides, 0 and -0 being equal; whitening and coordinate gradients depend on it."""
    size = 300
    coord = torch.randint(0, 5, (size,)).double() - 2
    coord[::7] = -0.0
    x, _, diag, weight, _ = (v.double() for v in draw((4,), size))
    sigma = LaplaceCovariance(diag, weight, coord)
    assert torch.equal(sigma.factor.order, (coord + 0.0).argsort(stable=True))
    assert_near(sigma.whiten(x), DenseTwin(diag, weight, coord + 0.0).whiten(x))
    assert_near(sigma.whiten(x), LaplaceCovariance(diag, weight, coord + 0.0).whiten(x), 0)


def test_coordinate_gradient_sums_to_zero() -> None:
    """Because a shift changes nothing."""
    assert abs(likelihood([v.double() for v in draw((4,), 50)])[-1].sum()) < 1e-12


def test_huge_gaps_decouple_blocks(path: str) -> None:
    """Log det, likelihood and solves are those of the blocks alone, bit by bit where the order of sums is the same."""
    x, loc, diag, weight, coord = (v.double() for v in draw((4,), 60))
    blocks = [slice(0, 20), slice(20, 21), slice(21, 60)]
    apart = torch.cat([coord[b] + 1e4 * i for i, b in enumerate(blocks)])
    whole = LaplaceCovariance(diag, weight, apart)
    parts = [LaplaceCovariance(diag[b], weight[b], coord[b]) for b in blocks]
    assert_near(whole.logdet(), sum(p.logdet() for p in parts), 1e-13)
    assert_near(whole.nll(x, loc), sum(p.nll(x[:, b], loc[b]) for p, b in zip(parts, blocks, strict=True)), 1e-13)
    solved = torch.cat([p.solve(x[:, b]) for p, b in zip(parts, blocks, strict=True)], -1)
    assert_near(whole.solve(x), solved, 1e-11)
    assert torch.isfinite(LaplaceCovariance(diag, weight, apart * 1e300).solve(x)).all()


def test_zero_weights_are_a_diagonal_normal(path: str) -> None:
    x, loc, diag, weight, coord = (v.double() for v in draw((4,), 50))
    sigma = LaplaceCovariance(diag, 0 * weight, coord)
    wanted = torch.distributions.Normal(loc, diag.sqrt()).log_prob(x).sum(-1)
    assert_near(-sigma.nll(x, loc), wanted, 1e-13)
    assert_near(sigma.solve(x), x / diag, 1e-14)


def test_ties_are_one_factor(path: str) -> None:
    """All coordinates equal: Sigma = diag(d) + w w', the matrix determinant lemma."""
    x, _, diag, weight, coord = (v.double() for v in draw((4,), 50))
    sigma = LaplaceCovariance(diag, weight, 0 * coord)
    capacity = 1 + (weight**2 / diag).sum()
    assert_near(sigma.logdet(), diag.log().sum() + capacity.log(), 1e-13)
    sherman_morrison = x / diag - (x @ (weight / diag))[:, None] * (weight / diag) / capacity
    assert_near(sigma.solve(x), sherman_morrison, 1e-12)


def test_ordered_coordinates_are_an_autoregression() -> None:
    """Nearly no noise and unit weights: whitening is x_k - phi x_{k-1}, over sqrt(1 - phi^2)."""
    size = 30
    x = torch.randn(3, size, dtype=torch.float64)
    sigma = LaplaceCovariance(
        torch.full((size,), 1e-14, dtype=torch.float64), torch.ones(size, dtype=torch.float64),
        0.5 * torch.arange(size, dtype=torch.float64),
    )  # fmt: skip
    phi = math.exp(-0.5)
    assert_near(sigma.whiten(x)[:, 1:], (x[:, 1:] - phi * x[:, :-1]) / math.sqrt(1 - phi**2), 1e-12)
