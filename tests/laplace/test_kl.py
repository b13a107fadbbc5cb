import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels, reference
from remix.laplace.kl import PrecisionKernel, precision_kernel
from remix.laplace.plane import Axis

PATHS = ["torch", *(["native"] if kernels.native() is not None else [])]


def vectors(size: int, seed: int) -> list[torch.Tensor]:
    """loc, diag, weight, coord."""
    generator = torch.Generator().manual_seed(seed)
    loc, diag, weight, coord = torch.randn(4, size, generator=generator, dtype=torch.float64)
    return [loc, diag.abs() + 0.1, weight, 3 * coord]


def normal(loc, diag, weight, coord) -> LaplaceNormal:
    return LaplaceNormal(loc, LaplaceCovariance(diag, weight, coord))


def dense(p: LaplaceNormal) -> MultivariateNormal:
    return MultivariateNormal(p.loc, p.covariance_matrix)


def pair(size: int, same_order: bool) -> list[torch.Tensor]:
    both = vectors(size, 1) + vectors(size, 2)
    if same_order:
        both[7] = 1.4 * both[3] - 2
    return [v.requires_grad_() for v in both]


class Reversal:
    """An orthonormal basis: coordinates in reverse."""

    def __init__(self, dim):
        self.dim = dim

    def forward(self, x):
        return x.flip(-1)

    inverse = forward

    def variance(self, covariance):
        return covariance.diagonal().flip(-1)

    def __eq__(self, other):
        return isinstance(other, Reversal)

    __hash__ = None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("same_order", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 40, 200])
def test_two_laplace_normals_and_all_gradients_against_dense(path, same_order, size):
    both = pair(size, same_order)
    with kernels.use(path):
        p, q = normal(*both[:4]), normal(*both[4:])
        value = kl_divergence(p, q)
        wanted = kl_divergence(dense(p), dense(q))
        torch.testing.assert_close(value, wanted, rtol=1e-11, atol=1e-12)
        got = torch.autograd.grad(value, both)
    right = torch.autograd.grad(wanted, both)
    for one, other in zip(got, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * float(other.abs().max() + 1))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_never_negative_with_ties_zero_weights_and_far_groups(data):
    size = data.draw(st.integers(1, 15))
    both = vectors(size, 3) + vectors(size, 4)
    values = st.lists(st.sampled_from([0.0, 0.0, 0.5, -2.0, 750.0, 1e6]), min_size=size, max_size=size)
    for k in (2, 6):
        both[k] = both[k] * (torch.rand(size, generator=torch.Generator().manual_seed(k)) < 0.7)
    for k in (3, 7):
        both[k] = torch.tensor(data.draw(values)).double()
    p, q = normal(*both[:4]), normal(*both[4:])
    value = kl_divergence(p, q)
    assert float(value) >= 0
    torch.testing.assert_close(value, kl_divergence(dense(p), dense(q)), rtol=1e-9, atol=1e-10)
    assert float(kl_divergence(p, p)) < 1e-13


@pytest.mark.parametrize("path", PATHS)
def test_zero_from_itself_at_scale(path):
    p = normal(*vectors(20_000, 5))
    with kernels.use(path):
        assert 0 <= float(kl_divergence(p, p)) < 1e-9


def test_near_models_do_not_drown_in_cancellation():
    """Moving every weight by a relative 1e-6 gives a divergence of about 1e-12 per coordinate, to several digits."""
    if len(PATHS) == 1:
        pytest.skip("the native library is not built")
    loc, diag, weight, coord = vectors(2000, 6)
    values = [
        float(kl_divergence(normal(loc, diag, weight, coord), normal(loc, diag, weight * (1 + eps), coord)))
        for eps in (1e-3, 1e-5)
    ]
    assert values[1] == pytest.approx(values[0] * 1e-4, rel=1e-2)


def test_against_monte_carlo():
    p, q = normal(*vectors(20, 7)), normal(*vectors(20, 8))
    x = p.sample((40_000,), generator=torch.Generator().manual_seed(0))
    difference = p.log_prob(x) - q.log_prob(x)
    error = float(difference.std() / len(x) ** 0.5)
    assert float(difference.mean()) == pytest.approx(float(kl_divergence(p, q)), abs=5 * error)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_diagonal_normals_both_ways(size):
    parameters = [v.requires_grad_() for v in vectors(size, 9)]
    loc, scale = (v.requires_grad_() for v in (vectors(size, 10)[0], vectors(size, 10)[1]))
    laplace, diagonal = normal(*parameters), Independent(Normal(loc, scale), 1)
    full = MultivariateNormal(loc, torch.diag(scale.square()))
    for value, wanted in (
        (kl_divergence(laplace, diagonal), kl_divergence(dense(laplace), full)),
        (kl_divergence(diagonal, laplace), kl_divergence(full, dense(laplace))),
    ):
        torch.testing.assert_close(value, wanted, rtol=1e-11, atol=1e-12)
        everything = [*parameters, loc, scale]
        got = torch.autograd.grad(value, everything, allow_unused=True, retain_graph=True)
        right = torch.autograd.grad(wanted, everything, retain_graph=True)
        for one, other in zip(got, right, strict=True):
            one = torch.zeros_like(other) if one is None else one
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_dense_normals_both_ways():
    laplace, other = normal(*vectors(15, 11)), dense(normal(*vectors(15, 12)))
    torch.testing.assert_close(kl_divergence(laplace, other), kl_divergence(dense(laplace), other))
    torch.testing.assert_close(kl_divergence(other, laplace), kl_divergence(other, dense(laplace)))


def test_dense_pairs_are_refused_above_the_dense_limit():
    size = 5000
    laplace = normal(*vectors(size, 13))
    diagonal = MultivariateNormal(torch.zeros(size), scale_tril=torch.eye(size), validate_args=False)
    with pytest.raises(ValueError, match="limit"):
        kl_divergence(laplace, diagonal)


def test_one_basis_on_both_sides_changes_nothing_but_the_shift():
    p, q = vectors(12, 14), vectors(12, 15)
    value, plain = (
        kl_divergence(
            LaplaceNormal(p[0], LaplaceCovariance(*p[1:]), basis), LaplaceNormal(q[0], LaplaceCovariance(*q[1:]), basis)
        )
        for basis in (Reversal(12), None)
    )
    flipped = kl_divergence(normal(p[0].flip(0), *p[1:]), normal(q[0].flip(0), *q[1:]))
    torch.testing.assert_close(value, flipped)
    assert not torch.allclose(value, plain)
    laplace = LaplaceNormal(p[0], LaplaceCovariance(*p[1:]), Reversal(12))
    diagonal = Independent(Normal(q[0], q[1]), 1)
    full = MultivariateNormal(q[0], torch.diag(q[1].square()))
    torch.testing.assert_close(kl_divergence(laplace, diagonal), kl_divergence(dense(laplace), full))
    torch.testing.assert_close(kl_divergence(laplace, full), kl_divergence(dense(laplace), full))


def test_a_batch_is_one_divergence_for_each():
    stacked = [torch.stack(v) for v in zip(vectors(10, 16), vectors(10, 17), strict=True)]
    single = normal(*vectors(10, 18))
    value = kl_divergence(normal(*stacked), single)
    wanted = [kl_divergence(normal(*(v[k] for v in stacked)), single) for k in range(2)]
    torch.testing.assert_close(value, torch.stack(wanted))


def test_what_does_not_fit_is_named():
    p, q = normal(*vectors(5, 19)), normal(*vectors(6, 20))
    with pytest.raises(ValueError, match="q has dimension 6, expected 5"):
        kl_divergence(p, q)
    with pytest.raises(ValueError, match="event shape"):
        kl_divergence(p, Independent(Normal(torch.zeros(6), torch.ones(6)), 1))
    with pytest.raises(ValueError, match="event shape"):
        kl_divergence(dense(q), p)
    turned = LaplaceNormal(p.loc, p.covariance, Reversal(5))
    with pytest.raises(ValueError, match="same basis"):
        kl_divergence(p, turned)
    with pytest.raises(ValueError, match="needs q without a basis"):
        kl_divergence(Independent(Normal(torch.zeros(5).double(), torch.ones(5).double()), 1), turned)


def test_tiny_diagonals_with_ties_against_sixty_digits():
    """d = 1e-12 on tied coordinates: dense float64 has lost most digits here, the recursion has not."""
    if len(PATHS) == 1:
        pytest.skip("the native library is not built")
    import mpmath

    size = 8
    coord = torch.tensor([0.0, 0.0, 0.0, 0.5, 0.5, 2.0, 2.0, 900.0], dtype=torch.float64)
    _, _, weight0, _ = vectors(size, 21)
    weight1 = weight0 * (1 + 1e-7 * torch.arange(size))
    diag0, diag1 = (torch.full((size,), value, dtype=torch.float64) for value in (1e-12, 3e-12))
    zero = torch.zeros(size, dtype=torch.float64)
    value = kl_divergence(normal(zero, diag0, weight0, coord), normal(zero, diag1, weight1, coord))

    with mpmath.workdps(60):

        def matrix(diag, weight):
            d, w, a = ([mpmath.mpf(float(x)) for x in v] for v in (diag, weight, coord))
            rows = range(size)
            return mpmath.matrix(
                [[w[i] * w[j] * mpmath.exp(-abs(a[i] - a[j])) + (d[i] if i == j else 0) for j in rows] for i in rows]
            )

        first, second = matrix(diag0, weight0), matrix(diag1, weight1)
        ratio = second**-1 * first
        trace = sum(ratio[i, i] for i in range(size))
        exact = (trace - size + mpmath.log(mpmath.det(second)) - mpmath.log(mpmath.det(first))) / 2
        relative = abs(mpmath.mpf(float(value)) - exact) / exact
    assert float(relative) < 1e-12


def test_a_plain_normal_is_the_diagonal_over_its_last_dimension():
    g = torch.Generator().manual_seed(0)
    d, w, a, loc, scale = (torch.rand(5, generator=g, dtype=torch.float64) + 0.3 for _ in range(5))
    p = LaplaceNormal(loc, LaplaceCovariance(d, w, a))
    plain = torch.distributions.Normal(0 * loc, scale)
    vector = torch.distributions.Independent(plain, 1)
    assert torch.equal(kl_divergence(p, plain), kl_divergence(p, vector))
    assert torch.equal(kl_divergence(plain, p), kl_divergence(vector, p))
    with pytest.raises(ValueError, match="q is a Normal of shape"):
        kl_divergence(p, torch.distributions.Normal(0.0, 1.0))


# --- the inverse as a kernel ---


def with_a_gap(size: int) -> list[torch.Tensor]:
    diag, weight, coord = torch.randn(3, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    weight[size // 2] = 0
    coord[size // 3] += 3000  # a gap across which nothing is seen
    return [v.requires_grad_() for v in (diag.abs() + 0.1, weight, 3 * coord)]


def to_dense(kernel: PrecisionKernel) -> torch.Tensor:
    rank = kernel.axis.rank
    position = kernel.axis.gap.cumsum(0)[rank]
    after = rank[:, None] > rank[None, :]
    distance = torch.where(after, position[:, None] - position[None, :], 0.0)
    below = -kernel.right[:, None] * kernel.left[None, :] * torch.exp(-distance) * after
    return torch.diag(kernel.diagonal) + below + below.mT


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [1, 2, 3, 40, 200])
def test_it_is_the_inverse_and_so_are_its_gradients(path, size):
    parameters = with_a_gap(size)
    diag, weight, coord = parameters
    with kernels.use(path):
        kernel = precision_kernel(diag, weight, Axis.of(coord))
        inverse = to_dense(kernel)
        logdet = kernel.innovation.log().sum()
        wanted = torch.linalg.inv(reference.dense(*parameters))
        torch.testing.assert_close(inverse, wanted, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(logdet, torch.logdet(reference.dense(*parameters)), rtol=1e-12, atol=1e-12)
        probe = torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        probe = probe + probe.mT
        got = torch.autograd.grad((inverse * probe).sum() + logdet, parameters)
    right = torch.autograd.grad((wanted * probe).sum() - torch.logdet(wanted), parameters)
    for one, other in zip(got, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * float(other.abs().max() + 1))


@pytest.mark.skipif(len(PATHS) == 1, reason="the native library is not built")
def test_ties_with_a_tiny_diagonal_agree_between_the_paths():
    """1 - P gam f is near 0 here: both paths get it without subtracting."""
    size = 30
    diag = torch.full((size,), 1e-12, dtype=torch.float64)
    weight = torch.linspace(0.5, 2, size, dtype=torch.float64)
    coord = (torch.arange(size) // 5).double()
    results = []
    for path in PATHS:
        with kernels.use(path):
            kernel = precision_kernel(diag, weight, Axis.of(coord))
            results.append(torch.stack([kernel.diagonal, kernel.left, kernel.right]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=0)
