"""Shared by the tests of the core: the three paths, and one thread unless a test says otherwise."""

from collections.abc import Iterator

import pytest
import torch

from remix.laplace import kernels


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def native() -> None:
    """Skips where the native library is not in use."""
    if kernels.native() is None:
        pytest.skip(f"no native kernels: {kernels.status().reason}")


@pytest.fixture(params=kernels.PATHS)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once per path."""
    if request.param == "native":
        request.getfixturevalue("native")
    with kernels.use(request.param):
        yield request.param
