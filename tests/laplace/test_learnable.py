"""The normal that is trained: gradients against a dense twin, real rows, its own state."""

import copy
import io
import math
from itertools import pairwise

import pytest
import torch
from dense_twin import DenseTwin, assert_near, draw
from torch import Tensor

from remix.data import load
from remix.laplace import Dct2, LaplaceCovariance, LaplaceNormal, LearnableNormal, fit


def start(batch: tuple[int, ...] = (), basis: Dct2 | None = None) -> LaplaceNormal:
    _, loc, *parameters = (v.double() for v in draw((), 12, batch))
    return LaplaceNormal(loc, LaplaceCovariance(*parameters), basis)


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    """Real correlated rows: the pixels of the digits that vary, standardised."""
    rows = load("digits").train.images.flatten(1).float()
    rows = rows[:, rows.std(0) > 10]
    return (rows - rows.mean(0)) / rows.std(0)


def train(model: LearnableNormal, rows: Tensor, optimiser: torch.optim.Optimizer, steps: int) -> list[float]:
    """The loss before each step."""
    losses = []
    for _ in range(steps):
        loss = -model().log_prob(rows).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("batch", [(), (3,)])
def test_gradients_are_those_of_autograd_through_a_dense_twin(batch: tuple[int, ...], path: str) -> None:
    model = LearnableNormal(start(batch))
    x = draw((5, *batch), 12, seed=1)[0].double()
    names = ("loc", "raw_diag", "weight", "coord")
    got = torch.autograd.grad(-model().log_prob(x).sum(), [getattr(model, name) for name in names])
    loc, raw, weight, coord = (getattr(model, name).detach().clone().requires_grad_() for name in names)
    twin = DenseTwin(torch.log1p(torch.exp(raw)), weight, coord)
    wanted = torch.autograd.grad(twin.nll(x, loc).sum(), [loc, raw, weight, coord])
    for name, one, other in zip(names, got, wanted, strict=True):
        assert_near(one, other, what=name)


@pytest.mark.parametrize("basis", [None, Dct2((1, 3, 4))])
def test_it_begins_as_the_normal_it_is_given(basis: Dct2 | None) -> None:
    given = start(basis=basis)
    model = LearnableNormal(given)
    x = draw((5,), 12, seed=1)[0].double()
    assert_near(model.normal().log_prob(x), given.log_prob(x))
    assert model().basis == basis
    with torch.no_grad():
        model.loc.add_(1)
    assert_near(given.loc, start().loc)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_variances_of_any_size_are_taken_over(dtype: torch.dtype) -> None:
    diag = torch.tensor([1e-30, 1e-6, 0.1, math.log(2), 1.0, 19.0, 21.0, 60.0, 1e6], dtype=dtype)
    model = LearnableNormal(LaplaceNormal(torch.zeros_like(diag), LaplaceCovariance(diag, 0 * diag, 0 * diag)))
    assert float((model.normal().diag / diag - 1).abs().max()) < 100 * torch.finfo(dtype).eps


@pytest.mark.parametrize("value", [-1e4, -200.0, 0.0, 1e4])
def test_no_parameter_makes_a_variance_that_is_not_positive(value: float) -> None:
    model = LearnableNormal(4)
    torch.nn.init.constant_(model.raw_diag, value)
    assert bool((model().diag > 0).all())
    assert bool(torch.isfinite(model().diag).all())


def test_from_a_size_it_begins_at_the_published_start() -> None:
    begun = LearnableNormal(16).double()()
    assert_near(begun.covariance.logdet(), torch.tensor(-5.6423565591).double(), 1e-4)
    assert begun.loc.tolist() == [0.0] * 16


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_training_from_a_size_lowers_the_loss_of_real_rows(
    pixels: Tensor, optimiser: type[torch.optim.Optimizer]
) -> None:
    model = LearnableNormal(pixels.shape[1])
    losses = train(model, pixels, optimiser(model.parameters(), lr=1e-3), 20)  # type: ignore[call-arg]
    assert all(after < before for before, after in pairwise(losses))


def test_training_ends_better_than_the_diagonal_on_real_rows(pixels: Tensor) -> None:
    model = LearnableNormal(pixels.shape[1])
    losses = train(model, pixels, torch.optim.Adam(model.parameters(), lr=0.02), 100)
    diagonal = torch.distributions.Normal(pixels.mean(0), pixels.std(0)).log_prob(pixels).sum(1).mean()
    assert losses[-1] < -float(diagonal) - 3


def test_a_fit_to_some_rows_is_trained_on_to_others(pixels: Tensor) -> None:
    digits = load("digits").train.labels
    old, new = pixels[digits < 5], pixels[digits >= 5]
    fitted = fit(old)
    model = LearnableNormal(fitted)
    train(model, new, torch.optim.Adam(model.parameters(), lr=0.01), 60)
    trained = model.normal()
    assert float(trained.log_prob(new).mean()) > float(fitted.log_prob(new).mean()) + 3


def test_what_it_gives_is_not_trained_on() -> None:
    model = LearnableNormal(start())
    x = torch.ones(12).double()
    given = model.normal()
    before = given.log_prob(x)
    assert not before.requires_grad
    train(model, x[None], torch.optim.Adam(model.parameters(), lr=0.1), 2)
    assert torch.equal(given.log_prob(x), before)
    assert not torch.equal(model.normal().log_prob(x), before)


@pytest.mark.parametrize("basis", [None, Dct2((1, 3, 4))])
def test_its_state_comes_back_bit_for_bit_with_its_basis(basis: Dct2 | None) -> None:
    model = LearnableNormal(start(basis=basis))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    back = LearnableNormal(12).double()
    back.load_state_dict(torch.load(file, weights_only=True))
    assert back.basis == basis
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), back.parameters(), strict=True))
    x = torch.ones(12).double()
    assert torch.equal(back().log_prob(x), model().log_prob(x))
    assert torch.equal(copy.deepcopy(model)().log_prob(x), model().log_prob(x))


def test_it_converts_as_every_module_does() -> None:
    model = LearnableNormal(5)
    assert model().loc.dtype == torch.float32
    with pytest.raises(ValueError, match=r"type value\.to\(torch\.float32\)"):
        model().log_prob(torch.zeros(5).double())
    assert model.double()().log_prob(torch.zeros(5).double()).dtype == torch.float64
    assert model.to("meta").loc.is_meta
    assert repr(model) == "LearnableNormal(dim=5)"


@pytest.mark.parametrize(("bad", "error"), [(torch.zeros(3), TypeError), ("64", TypeError), (0, ValueError)])
def test_another_start_is_refused(bad: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"start must be a LaplaceNormal or a number|D >= 1"):
        LearnableNormal(bad)  # type: ignore[arg-type]
