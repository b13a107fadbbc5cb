"""Large results live in blocks that are used again: never while anything still looks at them."""

import gc

import pytest
import torch

from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels

ROWS, SIZE = 40, 50_000  # 8 MB of float32


@pytest.fixture
def normal(native) -> LaplaceNormal:
    g = torch.Generator().manual_seed(0)
    diag, weight, coord = (torch.rand(SIZE, generator=g) + 0.1 for _ in range(3))
    return LaplaceNormal(torch.zeros(SIZE), LaplaceCovariance(diag, weight, 1000 * coord))


def test_results_do_not_share_memory(normal: LaplaceNormal) -> None:
    x = normal.sample((ROWS,))
    first = normal.covariance.solve(x)
    wanted = first.clone()
    view = first[3]
    del first
    gc.collect()
    others = [normal.covariance.matvec(x) for _ in range(4)] + [normal.sample((ROWS,))]
    assert torch.equal(view, wanted[3])
    assert len({t.untyped_storage().data_ptr() for t in [view, x, *others]}) == 7


def test_memory_is_used_again(normal: LaplaceNormal) -> None:
    x = normal.sample((ROWS,))
    kernels.release()
    place = normal.covariance.solve(x).data_ptr()
    gc.collect()
    assert normal.covariance.solve(x).data_ptr() == place


def test_gradients_survive_the_graph(normal: LaplaceNormal) -> None:
    x = normal.sample((ROWS,)).requires_grad_()
    normal.log_prob(x).sum().backward()
    kept = x.grad
    wanted = kept.clone()
    for _ in range(3):
        x.grad = None
        normal.log_prob(x).sum().backward()
    assert torch.equal(kept, wanted)
    assert torch.equal(x.grad, wanted)
    kept.add_(1)  # an ordinary tensor: writable, resizable views, saved and sent as any other
    assert torch.equal(x.grad, wanted)


def test_results_survive_a_release(normal: LaplaceNormal) -> None:
    x = normal.sample((ROWS,))
    y = normal.covariance.solve(x)
    wanted = y.clone()
    kernels.release()
    assert torch.equal(y, wanted)
    del y
    kernels.release()
    kernels.release()
