"""Bad input: an error that names the argument, its shape and what was expected, before any work is done."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dense_twin import draw

from remix.laplace import LaplaceCovariance, LaplaceNormal

X, LOC, DIAG, WEIGHT, COORD = draw((3,), 5)
NAN, INF = torch.nan, torch.inf


def with_value(v: torch.Tensor, value: float) -> torch.Tensor:
    """v with one entry replaced."""
    v = v.clone()
    v[..., 2] = value
    return v


def covariance(**changed: Any) -> LaplaceCovariance:
    return LaplaceCovariance(**({"diag": DIAG, "weight": WEIGHT, "coord": COORD} | changed))


def refused(call: Callable[[], Any], *mentions: str, error: type[Exception] = ValueError) -> None:
    """The call raises, and the message has all of ``mentions``."""
    with pytest.raises(error) as caught:
        call()
    for words in mentions:
        assert re.search(words, str(caught.value)), f"{words!r} is not in: {caught.value}"


@pytest.mark.parametrize("name", ["diag", "weight", "coord"])
class TestParameters:
    good = {"diag": DIAG, "weight": WEIGHT, "coord": COORD}  # noqa: RUF012

    @pytest.mark.parametrize("value", [NAN, INF, -INF])
    def test_not_finite_is_refused(self, name: str, value: float) -> None:
        refused(lambda: covariance(**{name: with_value(self.good[name], value)}), name, r"\(5,\)", "finite", r"\(2,\)")

    @pytest.mark.parametrize("bad", [[1.0] * 5, 1.0, None, "x"], ids=repr)
    def test_not_a_tensor_is_refused(self, name: str, bad: object) -> None:
        refused(lambda: covariance(**{name: bad}), name, "tensor", type(bad).__name__, error=TypeError)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
    def test_not_floating_point_is_refused(self, name: str, dtype: torch.dtype) -> None:
        refused(lambda: covariance(**{name: torch.ones(5, dtype=dtype)}), name, r"\(5,\)", "floating", str(dtype))

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 5)], ids=str)
    def test_empty_or_scalar_is_refused(self, name: str, shape: tuple[int, ...]) -> None:
        refused(lambda: covariance(**{name: torch.ones(shape)}), name, re.escape(str(shape)))

    def test_another_length_is_refused(self, name: str) -> None:
        """Named is whichever disagrees with diag; the lengths of both are given."""
        refused(lambda: covariance(**{name: torch.ones(4)}), "diag", r"\(4,\)", r"\(5,\)")

    def test_another_dtype_is_refused(self, name: str) -> None:
        refused(lambda: covariance(**{name: self.good[name].double()}), "diag", "float64", "float32")

    def test_another_device_is_refused(self, name: str) -> None:
        refused(lambda: covariance(**{name: self.good[name].to("meta")}), "diag", "meta", "cpu")

    def test_batch_shapes_that_do_not_broadcast_are_refused(self, name: str) -> None:
        both = {k: v.expand(2, 5) for k, v in self.good.items()} | {name: self.good[name].expand(3, 5)}
        refused(lambda: LaplaceCovariance(**both), name, r"\(3, 5\)", r"\(2, 5\)")


@pytest.mark.parametrize("value", [0.0, -0.0, -1e-30])
def test_noise_must_be_positive(value: float) -> None:
    refused(lambda: covariance(diag=with_value(DIAG, value)), "diag", r"\(5,\)", "positive", r"index \(2,\)")


def test_unchecked_parameters_are_the_callers_duty() -> None:
    LaplaceCovariance(-DIAG, WEIGHT, COORD, validate_args=False)
    refused(lambda: LaplaceCovariance(DIAG, WEIGHT[:4], COORD, validate_args=False), "weight", r"\(4,\)")


ROWS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "matvec": ("x", lambda x: covariance().matvec(x)),
    "solve": ("x", lambda x: covariance().solve(x)),
    "whiten": ("x", lambda x: covariance().whiten(x)),
    "unwhiten": ("z", lambda x: covariance().unwhiten(x)),
    "nll": ("x", lambda x: covariance().nll(x, LOC)),
    "log_prob": ("value", lambda x: LaplaceNormal(LOC, covariance()).log_prob(x)),
    "rescale": ("variance", lambda x: covariance().rescale(x)),
    "loc": ("loc", lambda x: LaplaceNormal(x, covariance())),
    "nll's loc": ("loc", lambda x: covariance().nll(X, x)),
}


@pytest.mark.parametrize("operation", ROWS)
class TestRows:
    def test_a_wrong_length_is_refused(self, operation: str) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(torch.ones(3, 4)), rf"\b{name}\b", r"\(\.\.\., 5\)", r"\(3, 4\)")
        refused(lambda: call(torch.ones(1)), rf"\b{name}\b", r"\(1,\)")

    @pytest.mark.parametrize("bad", [[1.0] * 5, None], ids=repr)
    def test_not_a_tensor_is_refused(self, operation: str, bad: object) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(bad), rf"\b{name}\b", "tensor", type(bad).__name__, error=TypeError)

    def test_not_floating_point_is_refused(self, operation: str) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(torch.ones(3, 5, dtype=torch.int32)), rf"\b{name}\b", r"\(3, 5\)", "floating", "int32")

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0)], ids=str)
    def test_no_coordinates_are_refused(self, operation: str, shape: tuple[int, ...]) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(torch.ones(shape)), rf"\b{name}\b", re.escape(str(shape)))

    def test_another_dtype_is_refused(self, operation: str) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(torch.ones(5, dtype=torch.float64)), rf"\b{name}\b", "float64", "float32")

    def test_another_device_is_refused(self, operation: str) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(torch.ones(5, device="meta")), rf"\b{name}\b", "meta", "cpu")

    @pytest.mark.parametrize("value", [NAN, INF, -INF])
    def test_not_finite_is_refused(self, operation: str, value: float) -> None:
        name, call = ROWS[operation]
        refused(lambda: call(with_value(torch.ones(5), value)), rf"\b{name}\b", r"\(5,\)", "finite", r"\(2,\)")


def test_leading_shapes_that_do_not_broadcast_are_refused() -> None:
    many = covariance(diag=DIAG.expand(2, 5))
    for call in (many.matvec, many.solve, many.whiten, many.unwhiten, lambda x: many.nll(x, LOC)):
        refused(lambda call=call: call(X), r"\(3,\)", r"\(2,\)", "broadcast")
    refused(lambda: LaplaceNormal(torch.ones(3, 5), many), "loc", r"\(3,\)", "covariance", r"\(2,\)")
    refused(lambda: covariance().nll(X, torch.ones(2, 5)), "loc", r"\(2, 5\)")


def test_variance_must_be_positive() -> None:
    refused(lambda: covariance().rescale(with_value(DIAG, 0.0)), "variance", r"\(5,\)", "positive", r"\(2,\)")


def test_covariance_must_be_one() -> None:
    refused(lambda: LaplaceNormal(LOC, torch.eye(5)), "covariance", "LaplaceCovariance", "Tensor", error=TypeError)


def test_a_dense_matrix_beyond_the_limit_is_refused() -> None:
    large = LaplaceCovariance(torch.ones(200_704), torch.ones(200_704), torch.zeros(200_704))
    refused(lambda: large.to_dense(), "200704", "150 GiB", "4096", "limit=200704")


def test_the_factor_of_a_batch_is_refused() -> None:
    refused(lambda: covariance(diag=DIAG.expand(2, 5)).factor, r"\(2,\)")


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e154), (torch.float32, 1e19), (torch.bfloat16, 1e19)])
def test_variances_beyond_the_dtype_are_refused(dtype: torch.dtype, limit: float) -> None:
    vectors = {"diag": DIAG.to(dtype), "coord": COORD.to(dtype)}
    weight = with_value(WEIGHT.to(dtype), 2 * limit)
    refused(
        lambda: LaplaceCovariance(weight=weight, **vectors), r"diag \+ weight\^2", "must be finite", r"index \(2,\)"
    )
    assert torch.isfinite(LaplaceCovariance(weight=weight / 2, **vectors).logdet())
