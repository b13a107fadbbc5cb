"""Accuracy where dense float64 fails (60 digits), float32 against float64 up to D = 10^6, and threads."""

import mpmath
import pytest
import torch
from dense_twin import ON_ROWS, TOLERANCE, assert_near, draw, with_gradients
from torch import Tensor

from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels

# --- 60 digits ---


def exact_solve(x: Tensor, sigma: LaplaceCovariance) -> tuple[float, float, list[float]]:
    """(log det Sigma, x' Sigma^-1 x, Sigma^-1 x) with 60 digits."""
    with mpmath.workdps(60):
        d, w, a, v = ([mpmath.mpf(float(t)) for t in u] for u in (sigma.diag, sigma.weight, sigma.coord, x))
        n = len(d)
        matrix = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(n):
                matrix[i, j] = w[i] * w[j] * mpmath.exp(-abs(a[i] - a[j])) + (d[i] if i == j else 0)
        root = mpmath.cholesky(matrix)
        solved = mpmath.cholesky_solve(matrix, mpmath.matrix(v))
        logdet = 2 * sum(mpmath.log(root[i, i]) for i in range(n))
        return float(logdet), float(mpmath.fdot(v, list(solved))), [float(s) for s in solved]


def tiny_noise(kind: str) -> LaplaceCovariance:
    """Nearly singular: d = 1e-12 with ties, near-ties, or weights of very different size."""
    g = torch.Generator().manual_seed(1)
    size = 14
    diag = torch.full((size,), 1e-12, dtype=torch.float64)
    weight = torch.randn(size, generator=g, dtype=torch.float64)
    coord = torch.randint(0, 4, (size,), generator=g).double() / 3
    if kind == "near ties":
        coord = coord + 1e-9 * torch.randn(size, generator=g, dtype=torch.float64)
    elif kind == "scales":
        weight = weight * 10 ** torch.linspace(-4, 4, size, dtype=torch.float64)
        diag = diag * 10 ** torch.linspace(3, -3, size, dtype=torch.float64)
    elif kind == "all tied":
        coord = torch.zeros_like(coord)
    return LaplaceCovariance(diag, weight, coord)


@pytest.mark.parametrize("kind", ["ties", "near ties", "scales", "all tied"])
def test_results_agree_with_sixty_digits(kind: str, path: str) -> None:
    sigma = tiny_noise(kind)
    x = torch.linspace(-1, 2, sigma.dim, dtype=torch.float64).cos()
    logdet, quadratic, solved = exact_solve(x, sigma)
    assert abs(float(sigma.logdet()) / logdet - 1) < 1e-14
    assert abs(float((x * sigma.solve(x)).sum()) / quadratic - 1) < 1e-13
    assert abs(float(sigma.whiten(x).square().sum()) / quadratic - 1) < 1e-13
    normal = LaplaceNormal(torch.zeros_like(x), sigma)
    assert abs(float(normal.log_prob(x)) / (-0.5 * (logdet + quadratic + sigma.dim * 1.8378770664093453)) - 1) < 1e-13
    assert_near(sigma.solve(x), torch.tensor(solved, dtype=torch.float64), 1e-13)


def test_dense_float64_is_no_oracle_there() -> None:
    """The reason for 60 digits: if this fails, the cases above have become easy."""
    sigma = tiny_noise("ties")
    x = torch.linspace(-1, 2, sigma.dim, dtype=torch.float64).cos()
    quadratic = exact_solve(x, sigma)[1]
    dense = float(x @ torch.linalg.solve(sigma.to_dense(), x))
    assert abs(dense / quadratic - 1) > 1e-8


def test_factorisation_is_componentwise_accurate(path: str) -> None:
    """S, P and C = 1 - P to the last digits, however small they are: only non-negative numbers are added."""
    sigma = tiny_noise("near ties")
    factor = sigma.factor
    with mpmath.workdps(60):
        P = S = last_d = before = mpmath.mpf(1)
        for k, i in enumerate(factor.order.tolist()):
            d, w, a = (mpmath.mpf(float(v[i])) for v in (sigma.diag, sigma.weight, sigma.coord))
            if k:
                decay = mpmath.exp(-2 * (a - before))
                P = decay * P * last_d / S + (1 - decay)
            S, last_d, before = d + w**2 * P, d, a
            for got, wanted in ((factor.S[k], S), (factor.P[k], P), (factor.C[k], 1 - P)):
                assert abs(float(got) - float(wanted)) <= 1e-13 * float(wanted)


@pytest.mark.parametrize("kind", ["ties", "near ties", "scales", "all tied"])
def test_gradients_of_a_solve_with_sixty_digits(kind: str, path: str) -> None:
    """That of x' Sigma^-1 x in w is -2 g K w g with g = Sigma^-1 x: a sum that cancels to the twelfth digit."""
    fixed = tiny_noise(kind)
    x = torch.linspace(-1, 2, fixed.dim, dtype=torch.float64).cos()
    weight = fixed.weight.clone().requires_grad_()
    sigma = LaplaceCovariance(fixed.diag, weight, fixed.coord)
    (got,) = torch.autograd.grad((x * sigma.solve(x)).sum(), weight)
    with mpmath.workdps(60):
        d, w, a, v = ([mpmath.mpf(float(t)) for t in u] for u in (fixed.diag, fixed.weight, fixed.coord, x))
        places = range(len(d))
        kernel = mpmath.matrix([[mpmath.exp(-abs(a[i] - a[j])) for j in places] for i in places])
        dense = mpmath.matrix([[w[i] * w[j] * kernel[i, j] + d[i] * (i == j) for j in places] for i in places])
        g = mpmath.cholesky_solve(dense, mpmath.matrix(v))
        wanted = [float(-2 * g[i] * mpmath.fsum(kernel[i, j] * w[j] * g[j] for j in places)) for i in places]
    assert_near(got, torch.tensor(wanted, dtype=torch.float64), 1e-9)


def scaled(power: int) -> list[Tensor]:
    """Vectors of 4^power Sigma, with small gaps."""
    _, _, diag, weight, coord = (v.double() for v in draw((1,), 33))
    return [v.requires_grad_() for v in (4.0**power * diag, 2.0**power * 1e4 * weight, 1e-13 * coord)]


@pytest.mark.parametrize("power", [-498, 480], ids=["1e-300", "1e289"])
def test_the_factorisation_at_the_ends_of_float64(power: int, path: str) -> None:
    for name in ("P", "C", "gam", "phi"):
        here, there = (getattr(LaplaceCovariance(*scaled(k)).factor, name) for k in (0, power))
        assert float((there / here - 1).nan_to_num().abs().max()) < 1e-14


@pytest.mark.parametrize("power", [-270, 270], ids=["1e-163", "1e163"])
def test_gradients_of_the_inverse_diagonal_where_those_in_diag_leave_float64(power: int, path: str) -> None:
    """They scale with 4^-2k in diag, 4^-k 2^-k in weight and 4^-k in coord."""
    found = []
    for k in (0, power):
        leaves = scaled(k)
        value = LaplaceCovariance(*leaves).inverse_diagonal()[:7].sum()
        in_weight, in_coord = torch.autograd.grad(value, leaves[1:])
        found.append((in_weight * 4.0**k * 2.0**k, in_coord * 4.0**k))
    for there, here in zip(found[1], found[0], strict=True):
        assert_near(there, here)


# --- float32 ---


def long_covariance(kind: str, dim: int) -> LaplaceCovariance:
    """Coordinates in memory order as adversarial as they come; parameters are exact in float32."""
    g = torch.Generator().manual_seed(3)
    steps = torch.rand(dim, generator=g, dtype=torch.float64)
    position = {
        "unit gaps": 2 * steps.cumsum(0),
        "slow decay": (steps * 2e-2).cumsum(0),
        "clusters of ties": (steps > 0.9).double().cumsum(0),
        "one correlation length": 2 * steps.cumsum(0) / dim,
    }[kind]
    order = torch.randperm(dim, generator=g)
    diag = 0.2 + torch.rand(dim, generator=g)
    return LaplaceCovariance(diag, torch.randn(dim, generator=g), position[order].float())


def doubled(sigma: LaplaceCovariance) -> LaplaceCovariance:
    return LaplaceCovariance(*(v.double() for v in sigma.tensors().values()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unit gaps", "slow decay", "clusters of ties", "one correlation length"])
@pytest.mark.parametrize("dim", [1000, 10**6])
def test_float32_against_float64(kind: str, dim: int) -> None:
    """Likelihoods and their gradients always; products too, unless a decay per step drowns in the rounding of 1."""
    sigma = long_covariance(kind, dim)
    wide = doubled(sigma)
    g = torch.Generator().manual_seed(4)
    x = wide.unwhiten(torch.randn(2, dim, dtype=torch.float64, generator=g)).float()
    zero = torch.zeros(dim)
    assert abs(float(sigma.logdet()) / float(wide.logdet()) - 1) < 1e-7
    rows, precise = x.clone().requires_grad_(), x.double().requires_grad_()
    narrow_value, wide_value = sigma.nll(rows, zero), wide.nll(precise, zero.double())
    assert_near(narrow_value.detach(), wide_value.detach(), 2e-7)
    narrow_value.sum().backward()
    wide_value.sum().backward()
    error = (rows.grad.double() - precise.grad).norm() / precise.grad.norm()
    assert error < 2e-6
    bound = max(4e-9 * dim, 5e-6) if kind == "one correlation length" else 5e-6
    for name in ("matvec", "unwhiten", "whiten"):
        got, wanted = getattr(sigma, name)(x).double(), getattr(wide, name)(x.double())
        assert (got - wanted).norm() / wanted.norm() < bound, name


@pytest.mark.parametrize("order", ["sorted", "reversed", "interleaved", "random"])
def test_order_in_memory_does_not_matter(order: str, path: str) -> None:
    dim = 4 * 256
    position = torch.arange(dim, dtype=torch.float64) * 0.02
    index = {
        "sorted": torch.arange(dim),
        "reversed": torch.arange(dim).flip(0),
        "interleaved": torch.arange(dim).view(4, -1).t().reshape(-1),
        "random": torch.randperm(dim),
    }[order]
    g = torch.Generator().manual_seed(0)
    diag, weight, x = (torch.rand(dim, generator=g, dtype=torch.float64) + 0.1 for _ in range(3))
    wanted = LaplaceCovariance(diag, weight, position).solve(x)
    got = LaplaceCovariance(diag[index], weight[index], position[index]).solve(x[index])
    assert torch.equal(got, wanted[index])


def test_parameter_gradients_in_float32_at_a_million() -> None:
    sigma = long_covariance("unit gaps", 10**6)
    results = []
    x = torch.randn(1, 10**6)
    for kind in (sigma, doubled(sigma)):
        leaves = [v.clone().requires_grad_() for v in kind.tensors().values()]
        rows = x.to(kind.dtype)
        LaplaceCovariance(*leaves).nll(rows, torch.zeros_like(rows[0])).sum().backward()
        results.append([v.grad.double() for v in leaves])
    for got, wanted in zip(*results, strict=True):
        assert (got - wanted).norm() / wanted.norm() < 2e-6


@pytest.mark.parametrize("dim", [50_000, 50_003])
def test_many_long_rows_at_once_are_as_a_few_at_a_time(dim: int) -> None:
    """More than the caches hold, where native kernels write around them: as a few rows at a time in float64."""
    sigma = long_covariance("unit gaps", dim)
    wide, zero = doubled(sigma), torch.zeros(dim)
    x = torch.randn(50, dim)
    rows = x.clone().requires_grad_()
    value = sigma.nll(rows, zero)
    value.sum().backward()
    leaves = [v.clone().requires_grad_() for v in sigma.tensors().values()]
    trained = x.clone().requires_grad_()
    LaplaceCovariance(*leaves).nll(trained, zero).sum().backward()
    few = x.double().split(7)
    exact = torch.cat([wide.solve(part) for part in few])
    for got in (sigma.solve(x), rows.grad, trained.grad):
        assert_near(got, exact)
    assert_near(value.detach(), torch.cat([wide.nll(part, zero.double()) for part in few]), 2e-7)


# --- threads ---


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("rows", "dim"), [(1, 70_001), (2, 9001), (17, 3001), (50, 1000), (33, 7)])
@pytest.mark.usefixtures("native")
def test_any_number_of_threads_gives_the_same_bits(rows: int, dim: int, dtype: torch.dtype) -> None:
    inputs = [v.to(dtype) for v in draw((rows,), dim)]
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        with kernels.use("native"):
            results.append([with_gradients(ON_ROWS[op], LaplaceCovariance, inputs) for op in ("nll", "unwhiten")])
    for other in results[1:]:
        for got, wanted in zip(other, results[0], strict=True):
            assert all(torch.equal(g, w) for g, w in zip(got, wanted, strict=True))
