"""A covariance follows the vectors it was given, however their values are changed; no factorisation is stale."""

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from dense_twin import OPERATIONS, DenseTwin, assert_near, draw
from torch import Tensor, nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.utils.dlpack import from_dlpack

from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels

Change = Callable[[Tensor], None]


def steps_of(optimiser: type[torch.optim.Optimizer], **options: bool) -> Change:
    def step(vector: Tensor) -> None:
        vector.grad = torch.linspace(-2, -1, vector.numel(), dtype=vector.dtype).view(vector.shape)
        optimiser([vector], lr=0.5, **options).step()  # type: ignore[call-arg]
        vector.grad = None

    return step


def assign_data(vector: Tensor) -> None:
    vector.data = vector.data * 1.5


def swap(vector: Tensor) -> None:
    torch.utils.swap_tensors(vector, (vector.detach() * 1.5).requires_grad_(vector.requires_grad))


def preserve_version(vector: Tensor) -> None:
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(vector):
        vector.mul_(1.5)


def in_inference_mode(vector: Tensor) -> None:
    with torch.inference_mode():
        vector.mul_(1.5)


def set_source(vector: Tensor) -> None:
    with torch.no_grad():
        vector.set_(vector.detach() * 1.5)  # type: ignore[call-overload]


def multiply(array: Any) -> None:
    array *= 1.5


CHANGES: dict[str, Change] = {
    "mul_": lambda v: v.detach().mul_(1.5),
    "data.mul_": lambda v: v.data.mul_(1.5),
    "data =": assign_data,
    "set_": set_source,
    "numpy": lambda v: multiply(v.detach().numpy()),
    "from_dlpack": lambda v: from_dlpack(v.detach()).mul_(1.5),
    "untyped_storage": lambda v: v.untyped_storage().copy_((v.detach() * 1.5).untyped_storage()),
    "swap_tensors": swap,
    "_unsafe_preserve_version_counter": preserve_version,
    "inference_mode": in_inference_mode,
    "SGD": steps_of(torch.optim.SGD),
    "SGD fused": steps_of(torch.optim.SGD, fused=True),
    "Adam foreach": steps_of(torch.optim.Adam, foreach=True),
    "Adam fused": steps_of(torch.optim.Adam, fused=True),
    "AdamW fused": steps_of(torch.optim.AdamW, fused=True),
}


def normal_of(loc: Tensor, *vectors: Tensor) -> LaplaceNormal:
    return LaplaceNormal(loc, LaplaceCovariance(*vectors))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


DIM = 7
X, LOC, *VECTORS = (v.double() for v in draw((4, 1), DIM))
OTHER = normal_of(*(v.double() for v in draw((1,), DIM, seed=1)[1:]))
DIAGONAL = Independent(Normal(LOC, torch.ones(DIM, dtype=torch.float64)), 1)

USES: dict[str, Callable[[LaplaceNormal], Tensor]] = {
    "log_prob": lambda n: n.log_prob(X),
    "rsample": lambda n: n.rsample((3,), generator()),
    "sample": lambda n: n.sample((3,), generator()),
    "entropy": lambda n: n.entropy(),
    "kl from": lambda n: kl_divergence(n, OTHER),
    "kl to": lambda n: kl_divergence(OTHER, n),
    "kl from diagonal": lambda n: kl_divergence(DIAGONAL, n),
    "kl to diagonal": lambda n: kl_divergence(n, DIAGONAL),
    "precision": lambda n: n.precision_matrix,
    "inner": lambda n: n.covariance.inner(OTHER.covariance),
    "expanded": lambda n: n.expand((2,)).log_prob(X),
}


def use_by_name(name: str, normal: LaplaceNormal) -> Tensor:
    return USES[name](normal) if name in USES else OPERATIONS[name](normal.covariance, X, normal.loc)


def uses(normal: LaplaceNormal, leaves: Sequence[Tensor]) -> dict[str, Tensor]:
    """Values and gradients of everything a Laplace normal gives."""
    found = {}
    for name in (*USES, *OPERATIONS):
        value = use_by_name(name, normal)
        found[name] = value.detach()
        if value.requires_grad:
            weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view(value.shape)
            grads = torch.autograd.grad(value, leaves, weights, allow_unused=True, materialize_grads=True)
            found |= {f"{name}, gradient {i}": grad for i, grad in enumerate(grads)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (2,)], ids=["one", "broadcast"])
@pytest.mark.parametrize("tracked", [True, False], ids=["trained", "constant"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_use_is_that_of_a_fresh_object(change: str, tracked: bool, shape: tuple[int, ...]) -> None:
    """Whichever vector is changed; ``loc`` has the batch shape, the others are expanded to it."""
    for place in range(4):
        leaves = [v.clone().requires_grad_(tracked) for v in (LOC.expand(*shape, DIM), *VECTORS)]
        normal = normal_of(*leaves)
        before = uses(normal, leaves)
        CHANGES[change](leaves[place])
        wanted = uses(normal_of(*leaves), leaves)
        assert not torch.equal(before["log_prob"], wanted["log_prob"])
        got = uses(normal, leaves)
        assert got.keys() == wanted.keys()
        assert all(torch.equal(got[name], value) for name, value in wanted.items())


@pytest.mark.parametrize("path", kernels.PATHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_change_of_one_value_is_seen_on_every_path_and_in_every_dtype(path: str, dtype: torch.dtype) -> None:
    vectors = [v.to(dtype)[:, None].expand(-1, 2)[:, 0] for v in VECTORS]  # not contiguous
    vectors[1] = vectors[1].contiguous()
    with kernels.use(path):
        sigma = LaplaceCovariance(*vectors)
        for vector in vectors:
            before = sigma.logdet()
            vector.data[-1] += 1
            assert sigma.logdet() != before
            assert torch.equal(sigma.logdet(), LaplaceCovariance(*vectors).logdet())


PLAIN_TORCH = ("diagonal", "rescale", "to_dense", "kl to diagonal")  # which autograd's own checks have to guard


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_forward_and_backward_raises_or_leaves_the_gradient_right(change: str) -> None:
    for name in {*USES, *OPERATIONS}.difference(PLAIN_TORCH):
        for place in range(1, 4):
            leaves = [v.clone().requires_grad_() for v in (LOC, *VECTORS)]
            value = use_by_name(name, normal_of(*leaves)).sum()
            if not value.requires_grad:
                continue
            (wanted,) = torch.autograd.grad(value, leaves[place], retain_graph=True)
            got = wanted
            with contextlib.suppress(RuntimeError):  # torch's own: changed in place, or no longer in the graph
                CHANGES[change](leaves[place])
                (got,) = torch.autograd.grad(value, leaves[place])
            assert torch.equal(got, wanted), name


def test_a_change_of_the_dtype_is_followed() -> None:
    module = nn.Module()
    for name, vector in zip(("diag", "weight", "coord"), VECTORS, strict=True):
        module.register_parameter(name, nn.Parameter(vector.clone()))
    sigma = LaplaceCovariance(module.diag, module.weight, module.coord)  # type: ignore[arg-type]
    sigma.logdet()
    module.float()
    assert sigma.solve(X.float()).dtype == torch.float32
    assert_near(sigma.solve(X.float()), DenseTwin(*VECTORS).solve(X))


def test_a_value_that_has_become_impossible_is_refused() -> None:
    diag, weight, coord = (v.clone() for v in VECTORS)
    sigma = LaplaceCovariance(diag, weight, coord)
    sigma.logdet()
    diag[2] = -1
    with pytest.raises(ValueError, match=r"diag .* must be positive, but is -1 at index \(2,\)"):
        sigma.solve(X)
    diag[2] = 1
    assert torch.equal(sigma.solve(X), LaplaceCovariance(diag, weight, coord).solve(X))
    coord.data = torch.ones(9, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"coord has changed its shape from \(7,\) to \(9,\)"):
        sigma.solve(X)


def test_a_shallow_copy_is_of_its_own() -> None:
    sigma = LaplaceCovariance(*VECTORS)
    before, twin = sigma.logdet(), copy.copy(sigma)
    twin.diag = 2 * twin.diag
    assert torch.equal(sigma.logdet(), before)
    assert torch.equal(twin.logdet(), LaplaceCovariance(2 * VECTORS[0], *VECTORS[1:]).logdet())
