"""Which code runs, and that calls from many threads do not meet."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from dense_twin import ON_ROWS, OPERATIONS, assert_all_near, draw, with_gradients

from remix.laplace import LaplaceCovariance, kernels
from remix.laplace.native_library import find_library

LIBRARY = find_library()


@pytest.mark.parametrize("wish", kernels.PATHS)
def test_the_environment_chooses_the_path(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wish == "native" and LIBRARY is None:
        pytest.skip("the native library was not built")
    monkeypatch.setenv("REMIX_KERNELS", wish)
    assert kernels.status().path == wish
    assert (kernels.native() is None) == (wish != "native")
    if wish != "native":
        assert f"REMIX_KERNELS={wish}" in kernels.status().reason


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"'cuda'.*native, torch, reference"), kernels.use("cuda"):
        pass
    monkeypatch.setenv("REMIX_KERNELS", "fast")
    with pytest.raises(ValueError, match=r"'fast'.*native, torch, reference"):
        kernels.status()


def test_use_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMIX_KERNELS", "torch")
    with kernels.use("reference"):
        assert kernels.status().path == "reference"
        with kernels.use("torch"):
            assert kernels.status().path == "torch"
        assert kernels.status().path == "reference"
    with pytest.raises(KeyError), kernels.use("reference"):
        raise KeyError
    assert kernels.status().path == "torch"


@pytest.mark.usefixtures("native")
def test_status_names_library_and_instruction_set() -> None:
    with kernels.use("native"):
        status = kernels.status()
    assert status.library == str(LIBRARY)
    assert status.isa in ("generic", "avx2", "avx512")


def test_many_python_threads_at_once_give_the_same_bits() -> None:
    """Scratch memory is shared between calls: concurrent ones must not meet in it."""
    inputs = [v.double() for v in draw((20,), 2000)]
    sigma = LaplaceCovariance(*inputs[2:])
    operations = [ON_ROWS[name] for name in ("solve", "matvec", "nll", "whiten")] * 8
    with torch.no_grad():
        wanted = [operation(sigma, *inputs[:2]) for operation in operations]
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda operation: operation(sigma, *inputs[:2]), operations))
    assert all(torch.equal(g, w) for g, w in zip(got, wanted, strict=True))


def test_nothing_is_warned_about_in_ordinary_use() -> None:
    kernels.status()  # says once if there is no library
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for operation in OPERATIONS.values():
            got = with_gradients(operation, LaplaceCovariance, draw((3,), 9))
            assert_all_near(got, with_gradients(operation, LaplaceCovariance, draw((3,), 9)))
