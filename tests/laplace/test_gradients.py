"""Autograd as its users know it: gradcheck, double backward, repeated backward, accumulation, cache invalidation."""

import copy

import pytest
import torch
from dense_twin import ON_ROWS, OPERATIONS, DenseTwin, assert_near, covariance, draw
from torch import Tensor

from remix.laplace import LaplaceCovariance, LaplaceNormal


def leaves(lead: tuple[int, ...] = (3,), dim: int = 5) -> list[Tensor]:
    return [v.double().requires_grad_() for v in draw(lead, dim)]


def fixed_normal(dim: int = 5) -> LaplaceNormal:
    _, loc, *parameters = (v.double() for v in draw((), dim))
    return LaplaceNormal(loc, LaplaceCovariance(*parameters))


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_are_those_of_finite_differences(name: str, path: str) -> None:
    assert torch.autograd.gradcheck(lambda x, loc, *p: OPERATIONS[name](LaplaceCovariance(*p), x, loc), leaves())


@pytest.mark.parametrize("name", ON_ROWS)
def test_gradgradcheck_in_rows_and_mean(name: str, path: str) -> None:
    x, loc, *parameters = leaves()
    fixed = LaplaceCovariance(*(v.detach() for v in parameters))
    assert torch.autograd.gradgradcheck(lambda x, loc: OPERATIONS[name](fixed, x, loc.clone()), (x, loc))


@pytest.mark.parametrize("name", ON_ROWS)
def test_gradient_in_rows_is_differentiable_in_the_parameters(name: str) -> None:
    """For example a gradient penalty on x while the covariance is trained."""
    results = []
    for kind in (LaplaceCovariance, DenseTwin):
        x, loc, *parameters = leaves()
        value = OPERATIONS[name](kind(*parameters), x, loc).square().sum()
        (in_x,) = torch.autograd.grad(value, x, create_graph=True)
        results.append(torch.autograd.grad(in_x.square().sum(), (x, *parameters)))
    for got, wanted in zip(*results, strict=True):
        assert_near(got, wanted)


def test_hessian_of_the_likelihood_is_the_precision() -> None:
    normal = fixed_normal()
    hessian = torch.autograd.functional.hessian(lambda x: -normal.log_prob(x), torch.randn(5, dtype=torch.float64))
    assert_near(hessian, torch.linalg.inv(normal.covariance_matrix))


# --- the gradient that the likelihood keeps for its first backward pass ---


@pytest.mark.parametrize("trained", [False, True], ids=["fixed parameters", "trained parameters"])
@pytest.mark.parametrize("cotangent", [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [-1.0, 0.0, 2.5], [0.0, 0.0, 0.0]], ids=str)
def test_every_backward_pass_adds_the_same(cotangent: list[float], trained: bool, path: str) -> None:
    x, loc, *parameters = leaves()
    normal = LaplaceNormal(loc, LaplaceCovariance(*(v if trained else v.detach() for v in parameters)))
    log_prob = normal.log_prob(x)
    kept = log_prob.detach().clone()
    weights = torch.tensor(cotangent, dtype=torch.float64)
    wanted = -weights[:, None] * DenseTwin(*parameters).solve(x - loc).detach()
    for times in (1, 2, 3):
        log_prob.backward(weights, retain_graph=True)
        assert_near(x.grad, times * wanted)
        assert_near(loc.grad, -times * wanted.sum(0))
    assert torch.equal(log_prob, kept)
    assert torch.equal(weights, torch.tensor(cotangent, dtype=torch.float64))


def test_gradients_of_two_likelihoods_add_up() -> None:
    normal = fixed_normal()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    normal.log_prob(x).sum().backward()
    first = x.grad
    once = first.clone()
    (3 * normal.log_prob(x)).sum().backward()
    assert_near(x.grad, 4 * once)
    x.grad = None
    normal.log_prob(x).sum().backward()
    assert torch.equal(x.grad, once)
    assert_near(first, 4 * once)


def test_returned_gradients_belong_to_the_caller() -> None:
    """Writing into a returned gradient, or the one after it, changes no other."""
    normal = fixed_normal()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    value = normal.log_prob(x)
    ones = torch.ones(4, dtype=torch.float64)
    (first,) = torch.autograd.grad(value, x, ones, retain_graph=True)
    wanted = first.clone()
    first.zero_()
    (second,) = torch.autograd.grad(value, x, 2 * ones, retain_graph=True)
    assert_near(second, 2 * wanted)
    (third,) = torch.autograd.grad(value, x, ones)
    assert_near(third, wanted)
    assert_near(second, 2 * wanted)


def test_one_row_used_by_two_likelihoods_in_one_graph() -> None:
    first, second = fixed_normal(), LaplaceNormal(torch.ones(5, dtype=torch.float64), fixed_normal().covariance)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    (first.log_prob(x) - 2 * second.log_prob(x)).sum().backward()
    wanted = -first.covariance.solve(x - first.loc) + 2 * second.covariance.solve(x - 1)
    assert_near(x.grad, wanted.detach())


def test_gradients_in_every_leaf_at_once_and_alone() -> None:
    together = leaves()
    covariance(together).nll(together[0], together[1]).sum().backward()
    for number in range(5):
        alone = [v if i == number else v.detach() for i, v in enumerate(leaves())]
        covariance(alone).nll(alone[0], alone[1]).sum().backward()
        assert_near(alone[number].grad, together[number].grad)


def test_batched_cotangents_are_taken_one_by_one() -> None:
    normal = fixed_normal()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    eye = torch.eye(4, dtype=torch.float64)
    (rows,) = torch.autograd.grad(normal.log_prob(x), x, eye, is_grads_batched=True)
    assert_near(rows, -eye[:, :, None] * normal.covariance.solve(x.detach() - normal.loc))


def test_rows_changed_in_place_before_backward_are_noticed() -> None:
    normal = fixed_normal()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    y = x * 1
    value = normal.log_prob(y).sum()
    with torch.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


# --- the cached factorisation ---


@pytest.mark.parametrize("name", ["diag", "weight", "coord"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_in_place_change_of_a_parameter_is_seen(name: str, batch: tuple[int, ...]) -> None:
    x, _, *parameters = (v.double() for v in draw((2,), 5, batch))
    sigma = LaplaceCovariance(*parameters)
    before = sigma.solve(x)
    getattr(sigma, name).mul_(1.5)
    assert not torch.allclose(sigma.solve(x), before)
    assert_near(sigma.solve(x), DenseTwin(*parameters).solve(x))


def test_factor_is_made_once_while_nothing_changes() -> None:
    sigma = fixed_normal().covariance
    first = sigma.factor
    sigma.solve(torch.randn(3, 5, dtype=torch.float64))
    assert sigma.factor is first


def test_a_parameter_assigned_anew_is_seen() -> None:
    sigma = fixed_normal().covariance
    sigma.logdet()
    sigma.diag = 3 * sigma.diag
    assert_near(sigma.logdet(), torch.logdet(sigma.to_dense()))


def test_a_copy_never_uses_a_stale_factor() -> None:
    sigma = fixed_normal().covariance
    for vector in sigma.tensors().values():
        vector.mul_(1.1)
    sigma.logdet()
    for vector in sigma.tensors().values():
        vector.mul_(1.1)
    twin = copy.deepcopy(sigma)
    assert_near(twin.logdet(), torch.logdet(sigma.to_dense()))


def test_training_the_parameters_reduces_the_likelihood_loss() -> None:
    x, loc, *parameters = leaves((50,), 5)
    sigma = LaplaceCovariance(*parameters)
    optimiser = torch.optim.Adam([loc, *parameters], lr=0.02)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = sigma.nll(x.detach(), loc).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    assert_near(sigma.nll(x, loc).detach(), DenseTwin(*parameters).nll(x, loc).detach())


def test_a_factor_made_without_gradients_serves_autograd_later() -> None:
    x = torch.randn(4, 5, dtype=torch.float64)
    for mode in (torch.no_grad, torch.inference_mode):
        normal = fixed_normal()
        with mode():
            value = normal.log_prob(x)
        y = x.clone().requires_grad_()
        again = normal.log_prob(y)
        again.sum().backward()
        assert torch.equal(value, again)
        assert_near(y.grad, -normal.covariance.solve(x - normal.loc))


def test_parameters_born_in_inference_mode() -> None:
    with torch.inference_mode():
        sigma = fixed_normal().covariance
        assert_near(sigma.logdet(), torch.logdet(sigma.to_dense()))
        sigma.diag.mul_(2)
        assert_near(sigma.logdet(), torch.logdet(sigma.to_dense()))
