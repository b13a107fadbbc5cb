import pytest
import torch

from remix.laplace import LaplaceCovariance, LaplaceNormal, merge


def normal(size: int, seed: int, like: LaplaceNormal | None = None, jitter: float = 1.0, shift: float = 0.0):
    """A random normal; ``like``: with the signs of another and its coordinates moved by ``jitter``."""
    g = torch.Generator().manual_seed(seed)
    coord = 0.3 * size * torch.rand(size, generator=g, dtype=torch.float64)
    weight = torch.randn(size, generator=g, dtype=torch.float64)
    weight = weight.sign() * (weight.abs() + 0.3)
    if like is not None:
        coord = like.coord + jitter * torch.randn(size, generator=g, dtype=torch.float64)
        weight = weight.abs() * like.weight.sign()
    diag = 0.05 + 0.5 * torch.rand(size, generator=g, dtype=torch.float64)
    loc = shift * torch.randn(size, generator=g, dtype=torch.float64)
    return LaplaceNormal(loc, LaplaceCovariance(diag, weight, coord))


def moments(components):
    mean = sum(c * p.loc for c, p in components)
    covariance = sum(c * (p.covariance_matrix + torch.outer(p.loc - mean, p.loc - mean)) for c, p in components)
    return mean, covariance


def divergence(covariance: torch.Tensor, model: torch.Tensor) -> float:
    """KL(N(0, covariance) || N(0, model)) per dimension."""
    trace = torch.trace(torch.linalg.solve(model, covariance)) - len(model)
    return float(0.5 * (trace + torch.logdet(model) - torch.logdet(covariance)) / len(model))


def error(covariance: torch.Tensor, model: torch.Tensor) -> float:
    return float((covariance - model).norm() / covariance.norm())


@pytest.fixture(scope="module")
def near_pair():
    first = normal(400, 1)
    return [(0.7, first), (0.3, normal(400, 2, like=first))]


@pytest.mark.parametrize("kwargs", [{}, {"objective": "frobenius"}, {"exact": False, "steps": 5}])
def test_mean_and_variances_are_exactly_those_of_the_mixture(kwargs):
    components = [(0.6, normal(100, 3, shift=1.0)), (0.4, normal(100, 4, shift=1.0))]
    merged = merge(components, generator=torch.Generator().manual_seed(0), **kwargs)
    mean, covariance = moments(components)
    torch.testing.assert_close(merged.mean, mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(merged.variance, covariance.diagonal(), rtol=1e-13, atol=0)


def test_likelihood_merge_beats_components_diagonal_and_frobenius_in_likelihood(near_pair):
    _, target = moments(near_pair)
    by_likelihood = divergence(target, merge(near_pair).covariance_matrix)
    by_distance = divergence(target, merge(near_pair, "frobenius").covariance_matrix)
    diagonal = divergence(target, torch.diag(target.diagonal()))
    kept = divergence(target, near_pair[0][1].covariance.rescale(target.diagonal()).to_dense())
    assert by_likelihood < by_distance < kept < diagonal
    assert by_likelihood < 0.2 * diagonal


def test_frobenius_merge_halves_the_error_of_keeping_the_old_model(near_pair):
    _, target = moments(near_pair)
    kept = error(target, near_pair[0][1].covariance_matrix)
    assert error(target, merge(near_pair, "frobenius").covariance_matrix) < 0.55 * kept


def test_unrelated_orders_and_shifted_means():
    components = [(0.5, normal(300, 5, shift=0.4)), (0.3, normal(300, 6, shift=0.4)), (0.2, normal(300, 7))]
    _, target = moments(components)
    merged = divergence(target, merge(components).covariance_matrix)
    assert merged < 0.85 * divergence(target, torch.diag(target.diagonal()))


def test_fresh_draws_come_close_to_the_exact_merge(near_pair):
    _, target = moments(near_pair)
    exact = divergence(target, merge(near_pair).covariance_matrix)
    drawn = merge(near_pair, exact=False, generator=torch.Generator().manual_seed(0))
    assert divergence(target, drawn.covariance_matrix) < 1.2 * exact
    again = merge(near_pair, exact=False, generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn.coord, again.coord)


def test_never_below_the_diagonal_when_correlations_cancel():
    """Half the mixture has the opposite correlations: nothing but the diagonal is left to find."""
    one = normal(60, 8)
    flip = torch.where(torch.arange(60) % 2 == 0, 1.0, -1.0).double()
    opposite = LaplaceNormal(one.loc, LaplaceCovariance(one.diag, one.weight * flip, one.coord))
    for objective in ("likelihood", "frobenius"):
        merged = merge([(0.5, one), (0.5, opposite)], objective)
        _, target = moments([(0.5, one), (0.5, opposite)])
        diagonal = divergence(target, torch.diag(target.diagonal()))
        assert divergence(target, merged.covariance_matrix) <= diagonal + 1e-12


@pytest.mark.parametrize("objective", ["likelihood", "frobenius"])
def test_a_normal_merged_with_itself_comes_back(objective):
    p = normal(150, 9, shift=1.0)
    merged = merge([(2.0, p), (1.0, p)], objective)
    torch.testing.assert_close(merged.loc, p.loc)
    torch.testing.assert_close(merged.covariance_matrix, p.covariance_matrix, rtol=1e-6, atol=1e-7)


def test_ties_far_groups_and_extreme_loadings_come_back():
    p = normal(40, 10)
    coord = p.coord.round()
    coord[:10] += 5000
    diag = p.diag.clone()
    diag[5] = 1e-9
    p = LaplaceNormal(p.loc, LaplaceCovariance(diag, p.weight, coord))
    merged = merge([(1.0, p), (1.0, p)])
    torch.testing.assert_close(merged.covariance_matrix, p.covariance_matrix, rtol=1e-6, atol=1e-7)


def test_one_component_comes_back_as_it_is():
    p = normal(10, 11)
    assert merge([(3.0, p)]) is p
    assert merge([(0.0, normal(10, 12)), (2.0, p)]) is p


def test_the_order_of_the_arguments_does_not_matter(near_pair):
    _, target = moments(near_pair)
    values = [divergence(target, merge(pairs).covariance_matrix) for pairs in (near_pair, near_pair[::-1])]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_one_and_two_coordinates_are_merged_exactly(size):
    components = [(0.5, normal(size, 13, shift=1.0)), (0.5, normal(size, 14))]
    mean, covariance = moments(components)
    merged = merge(components)
    torch.testing.assert_close(merged.mean, mean)
    torch.testing.assert_close(merged.variance, covariance.diagonal())
    if size == 2:  # two coordinates: the family holds every covariance, so the merge is exact
        assert divergence(covariance, merged.covariance_matrix) < 1e-5


def test_float32_in_float32_out():
    components = [
        (c, LaplaceNormal(p.loc.float(), LaplaceCovariance(p.diag.float(), p.weight.float(), p.coord.float())))
        for c, p in ((0.5, normal(50, 15)), (0.5, normal(50, 16)))
    ]
    merged = merge(components)
    assert merged.loc.dtype == merged.coord.dtype == torch.float32


def test_what_does_not_fit_is_named():
    p = normal(5, 17)
    with pytest.raises(ValueError, match="components is empty"):
        merge([])
    with pytest.raises(ValueError, match=r"components\[1\] has weight -1"):
        merge([(1.0, p), (-1.0, p)])
    with pytest.raises(ValueError, match="weight nan"):
        merge([(float("nan"), p)])
    with pytest.raises(ValueError, match="all zero"):
        merge([(0.0, p), (0.0, p)])
    with pytest.raises(ValueError, match=r"components\[1\] has dimension 6, expected 5"):
        merge([(1.0, p), (1.0, normal(6, 18))])
    single = LaplaceNormal(p.loc.float(), LaplaceCovariance(p.diag.float(), p.weight.float(), p.coord.float()))
    with pytest.raises(ValueError, match=r"components\[1\] has dtype torch\.float32"):
        merge([(1.0, p), (1.0, single)])
    with pytest.raises(ValueError, match="batch shape"):
        merge([(1.0, p.expand((2,)))])
    with pytest.raises(ValueError, match="LaplaceNormal"):
        merge([(1.0, "normal")])
    with pytest.raises(ValueError, match="objective"):
        merge([(1.0, p)], "mse")
    with pytest.raises(ValueError, match="steps must be at least 1"):
        merge([(1.0, p)], steps=0)
    with pytest.raises(ValueError, match="exact=True"):
        merge([(1.0, p), (1.0, normal(5, 19))], "frobenius", exact=False)


def test_merging_works_where_gradients_are_off(near_pair):
    with torch.no_grad():
        quiet = merge(near_pair)
    assert torch.equal(quiet.weight, merge(near_pair).weight)
