import pytest
import torch

from remix.laplace import kernels
from remix.laplace.fitting.likelihood import Chain, ChainData
from remix.laplace.fitting.order import chain_start
from remix.laplace.fitting.search import reinsert

DOUBLE = torch.float64


def _nll(data, chain: Chain) -> float:
    return ChainData(data, chain.order).nll(chain.loading, chain.phi)[0]


@pytest.mark.parametrize("visited", [0, 4, 9])  # both ends and the middle
def test_gain_of_one_move_is_the_gain_in_likelihood(path, model, standard, visited):
    data = standard(model(10).rsample((300,), generator=torch.Generator().manual_seed(2)))
    chain = chain_start(data, torch.randperm(10, generator=torch.Generator().manual_seed(visited)))
    chain.phi = chain.phi.clamp(max=0.9)
    chain.phi[0] = 0.0
    before, first = _nll(data, chain), chain.clone()
    # every unit but one is visited as itself: the sweep is cut short by moving only the first
    visits = torch.tensor([int(chain.order[visited])] * 10)
    moves, gain = reinsert(data, chain, visits)
    assert sorted(chain.order.tolist()) == list(range(10))
    if moves == 0:
        assert torch.equal(chain.order, first.order)
    # decays are capped at 0.999, ties at 1 are scored: hence the tolerance
    assert before - _nll(data, chain) == pytest.approx(gain, abs=5e-3)


def test_sweeps_improve_a_bad_order(path, model, standard):
    data = standard(model(16).rsample((500,), generator=torch.Generator().manual_seed(2)))
    chain = chain_start(data, torch.arange(16))
    before = _nll(data, chain)
    moves, gain = reinsert(data, chain, torch.randperm(16, generator=torch.Generator().manual_seed(0)))
    assert moves > 0
    assert _nll(data, chain) < before - 0.5 * gain


@pytest.mark.skipif(kernels.native() is None, reason="native library not built")
@pytest.mark.parametrize("rows", [40, 150])
def test_native_sweep_is_the_python_sweep(model, standard, rows):
    data = standard(model(12).rsample((rows,), generator=torch.Generator().manual_seed(5)))
    visits = torch.randperm(12, generator=torch.Generator().manual_seed(6))
    start = chain_start(data, torch.arange(12))
    results = {}
    for name in ("native", "torch"):
        chain = start.clone()
        with kernels.use(name):
            results[name] = (*reinsert(data, chain, visits), _nll(data, chain))
    # not the order itself: places that are equally good may be taken either way
    assert results["native"] == pytest.approx(results["torch"], rel=1e-4)


def test_units_keep_to_their_largest_loading(path, model, standard):
    data = standard(model(12).rsample((200,), generator=torch.Generator().manual_seed(2)))
    data.largest = torch.full((12,), 0.3, dtype=DOUBLE)
    chain = chain_start(data, torch.arange(12))
    start = chain.clone()
    moves, _ = reinsert(data, chain, torch.arange(12))
    changed = {
        int(unit) for unit, r in zip(chain.order, chain.loading, strict=True)
        if r != start.loading[start.order == unit]
    }  # fmt: skip
    assert moves > 0
    assert all(abs(float(chain.loading[chain.order == unit])) <= 0.3 for unit in changed)
