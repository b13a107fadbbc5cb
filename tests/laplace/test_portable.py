"""Normals and covariances in another dtype, on another device, in a file and back."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dense_twin import assert_near, draw
from safetensors.torch import load_file, save_file
from torch import Tensor

from remix.laplace import Dct2, LaplaceCovariance, LaplaceNormal, fit

NAMES = ("loc", "diag", "weight", "coord")
State = dict[str, Tensor]


def make(batch: tuple[int, ...] = (), basis: Dct2 | None = None) -> LaplaceNormal:
    _, loc, *parameters = draw((), 12, batch)
    return LaplaceNormal(loc, LaplaceCovariance(*parameters), basis)


def same(one: LaplaceNormal, other: LaplaceNormal) -> bool:
    """The same numbers, bit for bit, in the same dtype and basis."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in NAMES]
    return one.basis == other.basis and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


# --- dtype and device ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_to_converts_all_four_vectors_as_a_tensor_does(dtype: torch.dtype) -> None:
    normal = make()
    like = torch.ones(1, dtype=dtype)
    for converted in (normal.to(dtype), normal.to(dtype=dtype), normal.to("cpu", dtype), normal.to(like)):
        assert all(torch.equal(getattr(converted, name), getattr(normal, name).to(dtype)) for name in NAMES)
        assert converted.loc.dtype == converted.covariance.dtype == dtype


def test_to_keeps_basis_report_and_batch_shape() -> None:
    rows = torch.randn(60, 12).cumsum(1)
    normal = fit(rows, layout=(1, 3, 4), transform="dct")
    assert normal.basis is not None
    assert normal.report is not None
    double = normal.double()
    assert (double.basis, double.report) == (normal.basis, normal.report)
    assert str(double.report) in str(double)
    assert_near(double.log_prob(rows.double()), normal.log_prob(rows).double(), 1e-5)
    wide = make().expand((3, 2)).double()
    assert (wide.batch_shape, wide.covariance.batch_shape) == ((3, 2), (3, 2))
    assert wide.log_prob(torch.zeros(12).double()).shape == (3, 2)
    assert make().covariance.expand((4,)).double().shape == (4, 12, 12)


def test_double_and_float_are_there_and_back_without_a_change() -> None:
    normal = make()
    assert normal.double().loc.dtype == torch.float64
    assert same(normal.double().float(), normal)
    covariance = normal.covariance.double()
    assert covariance.dtype == torch.float64
    assert_near(covariance.logdet(), normal.covariance.logdet().double(), 1e-6)


def test_it_is_itself_where_nothing_changes() -> None:
    normal = make()
    assert normal.to("cpu") is normal
    assert normal.float() is normal
    assert normal.covariance.to(torch.float32) is normal.covariance
    copied = normal.to("cpu", copy=True)
    assert same(copied, normal)
    assert copied.loc.data_ptr() != normal.loc.data_ptr()


def test_a_move_takes_every_vector() -> None:
    moved = make().to("meta")
    assert all(getattr(moved, name).device.type == "meta" for name in NAMES)


def test_gradients_flow_through_a_conversion() -> None:
    normal = make()
    leaves = [getattr(normal, name).requires_grad_() for name in NAMES]
    normal.double().log_prob(torch.ones(12).double()).backward()
    assert all(leaf.grad is not None and bool(leaf.grad.abs().sum() > 0) for leaf in leaves)


def test_whether_values_are_checked_is_kept() -> None:
    bad = torch.full((12,), torch.nan, dtype=torch.float64)
    normal = make()
    unchecked = LaplaceNormal(normal.loc, LaplaceCovariance(*normal.covariance.parameters, False), None, False)
    assert unchecked.double().log_prob(bad).isnan()
    with pytest.raises(ValueError, match="value"):
        normal.double().log_prob(bad)


def test_a_dtype_that_cannot_hold_the_numbers_is_refused() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    tiny = LaplaceCovariance(1e-60 * ones, ones, ones)
    with pytest.raises(ValueError, match=r"diag .* must be positive"):
        tiny.float()
    with pytest.raises(ValueError, match="floating point"):
        make().to(torch.int64)


def test_rows_of_another_dtype_are_refused_with_what_to_type() -> None:
    normal, rows = make(), torch.zeros(2, 12, dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"type value\.to\(torch\.float32\), or \.to\(torch\.float64\) on the LaplaceNo"
    ):
        normal.log_prob(rows)
    with pytest.raises(ValueError, match=r"type x\.to\(torch\.float32\), or \.to\(torch\.float64\) on the LaplaceCov"):
        normal.covariance.solve(rows)
    typed = normal.log_prob(rows.to(torch.float32)), normal.to(torch.float64).log_prob(rows)
    assert_near(typed[0], typed[1])
    with pytest.raises(
        ValueError, match=r"type loc\.to\(torch\.float64\), or \.to\(torch\.float32\) on the LaplaceCov"
    ):
        LaplaceNormal(normal.loc, normal.covariance.double())


# --- saving ---


def by_torch(state: State, folder: Path) -> State:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: State = torch.load(file, weights_only=True)
    return loaded


def by_safetensors(state: State, folder: Path) -> State:
    save_file(state, folder / "normal.safetensors")
    loaded: State = load_file(folder / "normal.safetensors")
    return loaded


@pytest.mark.parametrize("through", [by_torch, by_safetensors])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_normal_comes_back_bit_for_bit(
    through: Callable[[State, Path], State], dtype: torch.dtype, tmp_path: Path
) -> None:
    shared = torch.ones(12)  # one tensor in three places
    one = LaplaceNormal(shared, LaplaceCovariance(shared, shared, torch.arange(12.0)))
    for normal in (make(), make((2, 3)), make().expand((4,)), make(basis=Dct2((1, 3, 4))), one):
        saved = normal.to(dtype)
        back = LaplaceNormal.from_state_dict(through(saved.state_dict(), tmp_path))
        assert same(back, saved)
        assert back.batch_shape == saved.batch_shape
        covariance = LaplaceCovariance.from_state_dict(through(saved.covariance.state_dict(), tmp_path))
        assert all(torch.equal(a, b) for a, b in zip(covariance.parameters, saved.covariance.parameters, strict=True))


def test_a_state_has_copies_without_gradients() -> None:
    normal = make()
    normal.loc.requires_grad_()
    state = normal.state_dict()
    before = normal.loc.detach().clone()
    with torch.no_grad():
        normal.loc.add_(1)
    assert list(state) == list(NAMES)
    assert torch.equal(state["loc"], before)
    assert not state["loc"].requires_grad


def test_states_of_something_else_are_refused_by_name() -> None:
    state = make().state_dict()
    with pytest.raises(ValueError, match=r"LaplaceNormal\.from_state_dict needs loc, diag.* got diag, weight, coord: "):
        LaplaceNormal.from_state_dict(make().covariance.state_dict())
    with pytest.raises(ValueError, match=r"LaplaceCovariance\.from_state_dict needs diag.* got loc, diag"):
        LaplaceCovariance.from_state_dict(state)
    with pytest.raises(ValueError, match="got nothing"):
        LaplaceNormal.from_state_dict({})
    with pytest.raises(ValueError, match=r"diag .* must be positive"):
        LaplaceNormal.from_state_dict(state | {"diag": -state["diag"]})
    for layout in ([3, 4], [1, 3, 0], [1, 3, 5]):
        with pytest.raises(ValueError, match=r"layout must be three|basis is for 15"):
            LaplaceNormal.from_state_dict(state | {"dct": torch.tensor(layout)})


def test_a_basis_of_ones_own_is_not_saved_silently() -> None:
    class Other:
        dim = 12

    with pytest.raises(TypeError, match="Dct2 alone, not Other"):
        make(basis=Other()).state_dict()  # type: ignore[arg-type]
