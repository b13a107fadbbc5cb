import pytest
import torch

from remix.laplace import kernels, reference
from remix.laplace.fitting.frobenius import (
    FrobeniusRecipe,
    batches_at_hand,
    descend,
    frobenius_error,
    frobenius_terms,
)


def _data_term(rows, weight, coord):
    return torch.einsum("ni,ij,nj->", rows, reference.dense(torch.zeros_like(weight), weight, coord), rows)


def _descend(v, recipe, generator):
    return descend(batches_at_hand(v, recipe.batch_size, generator), len(v), v.dtype, recipe)


def _problem(size, rows, dtype=torch.float64, ties=False):
    rng = torch.Generator().manual_seed(size)
    v, weight = torch.randn(size, rows, generator=rng, dtype=dtype), torch.randn(size, generator=rng, dtype=dtype)
    coord = 3 * torch.randn(size, generator=rng, dtype=dtype)
    return v, weight, coord.round() if ties else coord


@pytest.mark.parametrize(("size", "rows"), [(1, 3), (2, 1), (17, 50), (40, 128), (33, 131), (20, 700)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_terms_match_dense_autograd(path, size, rows, dtype, tolerance):
    v, weight, coord = _problem(size, rows, dtype)
    total, weight_bar, coord_bar = frobenius_terms(v, weight, coord)
    w, a = weight.double().requires_grad_(), coord.double().requires_grad_()
    wanted = _data_term(v.T.double(), w, a)
    wanted.backward()
    assert float(total) == pytest.approx(wanted.item(), rel=tolerance)
    scale = float(w.grad.abs().max()) + float(a.grad.abs().max())
    torch.testing.assert_close(weight_bar.double(), w.grad, rtol=tolerance, atol=tolerance * scale)
    torch.testing.assert_close(coord_bar.double(), a.grad, rtol=tolerance, atol=tolerance * scale)


def test_ties_and_strided_rows(path):
    v, weight, coord = _problem(30, 21, ties=True)
    wide = torch.randn(30, 40, dtype=v.dtype)
    wide[:, 5:26] = v
    for rows in (v, wide[:, 5:26], v.T.contiguous().T):
        total, weight_bar, _ = frobenius_terms(rows, weight, coord)
        wanted = _data_term(v.T, weight, coord)
        assert float(total) == pytest.approx(float(wanted))
        torch.testing.assert_close((weight_bar * weight).sum(), 2 * wanted)  # Q is of degree 2 in w


@pytest.mark.skipif(kernels.native() is None, reason="native library not built")
def test_any_number_of_threads_gives_the_same_bits():
    v, weight, coord = _problem(50, 1500, torch.float32)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 4):
        torch.set_num_threads(count)
        results.append(frobenius_terms(v, weight, coord))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("rows", [15, 60])
def test_error_is_that_of_dense_matrices(path, rows):
    v, weight, coord = _problem(25, rows)
    diag = torch.rand(25, dtype=v.dtype)
    sample = v @ v.T / rows
    wanted = (reference.dense(diag, weight, coord) - sample).norm() / sample.norm()
    assert frobenius_error(v, diag, weight, coord) == pytest.approx(float(wanted))


@pytest.mark.parametrize(("power", "decay"), [(1, 0.0), (2, 1e-5), (6, 1e-5)])
def test_descent_follows_the_gradient_of_the_dense_loss(path, power, decay):
    v, *_ = _problem(12, 40)
    recipe = FrobeniusRecipe(steps=25, coord_lr=0.12, coord_decay=decay, power=power)
    diag, weight, coord = _descend(v, recipe, torch.Generator())
    raw, w = torch.zeros(12, dtype=v.dtype), torch.full((12,), 0.1, dtype=v.dtype)
    a = torch.linspace(-1, 1, 12, dtype=v.dtype)
    parameters = [p.requires_grad_() for p in (raw, w, a)]
    line = {"params": parameters[2:], "lr": 0.12, "weight_decay": decay}
    optimiser = torch.optim.Adam([{"params": parameters[:2], "lr": 0.01}, line])
    for _ in range(25):
        optimiser.zero_grad()
        model = reference.dense(torch.nn.functional.softplus(raw) + 1e-5, w, a)
        ((model - v @ v.T / 40).square().sum() / 12**power).backward()
        optimiser.step()
    torch.testing.assert_close(diag, torch.nn.functional.softplus(raw.detach()) + 1e-5)
    torch.testing.assert_close(weight, w.detach())
    torch.testing.assert_close(coord, a.detach())


def test_the_recipe_for_long_vectors_is_the_published_one():
    recipe = FrobeniusRecipe.long_vectors(rows=300)
    assert (recipe.steps, recipe.lr, recipe.coord_lr, recipe.batch_size) == (300, 0.01, 0.12, 128)
    assert recipe.schedule is not None
    assert recipe.schedule(0) == pytest.approx(1.18)
    assert recipe.schedule(1) == pytest.approx(0.28)


def test_the_recipe_for_images_is_the_published_one():
    recipe = FrobeniusRecipe.for_images(rows=100)
    assert recipe == FrobeniusRecipe(50 * 4, 0.01, 0.12, 32, None, 1e-5, coord_decay=1e-5, power=2)


def test_minibatches_are_drawn_from_the_generator():
    v, *_ = _problem(8, 30)
    recipe = FrobeniusRecipe(steps=12, batch_size=7)
    runs = [_descend(v, recipe, torch.Generator().manual_seed(seed))[1] for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("bad", [{"steps": 0}, {"lr": 0.0}, {"batch_size": 0}, {"floor": -1.0}, {"power": -1}])
def test_a_bad_recipe_is_refused_by_the_name_of_its_setting(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        FrobeniusRecipe(**bad)


def test_terms_name_their_shapes():
    with pytest.raises(ValueError, match=r"\(D, N\)"):
        frobenius_terms(torch.zeros(3, 4), torch.zeros(4), torch.zeros(3))
