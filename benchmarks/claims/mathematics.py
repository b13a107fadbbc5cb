"""Claims about the covariance itself, computed here on small examples and read from the speed benchmark."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from benchmarks.claims.claim import ANY_SIZE, PAPER_SIZES, Claim, Finding, Verdict
from benchmarks.claims.files import Results
from remix.laplace import LaplaceCovariance, LaplaceNormal, reference

ROUNDING = 1e-12  # float64 on examples of a few numbers is far below this
SPEED = "bench/speed.json"
BETWEEN_LINEAR_AND_QUADRATIC = 1.5  # a measured exponent below this is nearer to D (or D log D) than to D^2


def _example(results: Results) -> dict[str, Tensor]:
    example = results.published["worked example"]
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in example.items()}


def _vectors(example: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return example["diag"], example["weight"], example["coord"]


def _outside_three_diagonals(matrix: Tensor) -> float:
    return float(torch.triu(matrix, diagonal=2).abs().max())


def _tridiagonal(results: Results) -> Finding:
    example = _example(results)
    order = torch.argsort(example["coord"])
    diag, weight, coord = (vector[order] for vector in _vectors(example))
    kernel = _outside_three_diagonals(torch.linalg.inv(reference.kernel(coord)))
    sigma = _outside_three_diagonals(torch.linalg.inv(reference.dense(diag, weight, coord)))
    wrong = kernel < ROUNDING < sigma
    return Finding(
        (
            f"Worked example with {len(coord)} coordinates, sorted. Largest entry outside the three middle diagonals: "
            f"of the inverse of K {'zero up to rounding' if kernel < ROUNDING else f'{kernel:.4f}'}, of the inverse of "
            f"Sigma {sigma:.4f}.",
            "The inverse of K is tridiagonal. Adding diag(d) destroys that: the inverse of Sigma is dense, with "
            "off-diagonal blocks of rank one. What the paper derives from it survives: the recursion that it gives in "
            "its own appendix does not use a tridiagonal inverse (see the next claim).",
        ),
        Verdict.WRONG_AS_STATED if wrong else Verdict.HOLDS,
        "The inverse of Sigma has entries outside the three diagonals; only the inverse of K has none."
        if wrong
        else "Nothing stands outside the three diagonals.",
        ANY_SIZE,
    )


def _relative(first: Tensor, second: Tensor) -> float:
    return float(((first - second).abs() / second.abs()).max())


def _growth(part: dict[str, Any], larger: dict[str, Any], work: str) -> float:
    """Exponent of the time in D between two sizes."""
    times = larger["seconds"][work] / part["seconds"][work]
    return math.log(times) / math.log(larger["D"] / part["D"])


def _exact_likelihood(results: Results) -> Finding:
    speed = results.json(SPEED)
    example = _example(results)
    ours = LaplaceNormal(example["mean"], LaplaceCovariance(*_vectors(example))).log_prob(example["rows"])
    dense = torch.distributions.MultivariateNormal(example["mean"], reference.dense(*_vectors(example)))
    error = _relative(ours, dense.log_prob(example["rows"]))
    small, large = speed["operations"], speed["operations at D = 10^6"]
    work = "NLL value + gradient in x"
    exponent = _growth(small, large, work)
    peers = ", ".join(
        f"{name} {value:.0e}" for name, value in speed["agreement with peers (relative)"].items() if value
    )
    good = error < ROUNDING and exponent < BETWEEN_LINEAR_AND_QUADRATIC
    return Finding(
        (
            "Worked example: the log-likelihood agrees with that of the dense Gaussian "
            f"{'up to rounding' if error < ROUNDING else f'to {error:.0e}'}. Relative difference to other libraries: "
            f"{peers}.",
            f"Value and gradient of {small['B']} rows: {1e3 * small['seconds'][work]:.0f} ms at D = {small['D']:,}, "
            f"{1e3 * large['seconds'][work]:.0f} ms at D = {large['D']:,}. Time grows as D^{exponent:.2f} between the "
            "two (a sorted order is kept while parameters do not change; larger data no longer fit the caches).",
        ),
        Verdict.HOLDS if good else Verdict.NOT_SHOWN,
        "The value is exact and the time grows nearly in proportion to D."
        if good
        else "The value or the growth of the time is not as said.",
        PAPER_SIZES,
    )


def _implicit_frobenius(results: Results) -> Finding:
    speed = results.json(SPEED)
    example = _example(results)
    diag, weight, coord = _vectors(example)
    rows = example["rows"] - example["mean"]
    sigma = reference.dense(diag, weight, coord)
    dense = ((sigma - rows.T @ rows / len(rows)) ** 2).sum()
    squared = weight**2
    model = (diag**2).sum() + 2 * diag @ squared + squared @ reference.kernel(2 * coord) @ squared
    data = (rows @ sigma * rows).sum() / len(rows)
    constant = ((rows @ rows.T) ** 2).sum() / len(rows) ** 2
    error = _relative(model - 2 * data + constant, dense)
    small, large = speed["operations"], speed["operations at D = 10^6"]
    work = "Frobenius value + all gradients"
    exponent = _growth(small, large, work)
    good = error < ROUNDING and exponent < BETWEEN_LINEAR_AND_QUADRATIC
    return Finding(
        (
            "Worked example: the expanded form equals the distance of the dense matrices "
            f"{'up to rounding' if error < ROUNDING else f'to {error:.0e}'}.",
            f"Value and all gradients for {small['B']} rows: {1e3 * small['seconds'][work]:.0f} ms at D = "
            f"{small['D']:,}, {1e3 * large['seconds'][work]:.0f} ms at D = {large['D']:,}; time grows as "
            f"D^{exponent:.2f}.",
        ),
        Verdict.HOLDS if good else Verdict.NOT_SHOWN,
        "The expansion is right and no D x D matrix is needed." if good else "The form or the growth is not as said.",
        PAPER_SIZES,
    )


def _stable(results: Results) -> Finding:
    hard = results.published["hard example"]
    size = int(hard["D"])
    diag, weight, coord = (torch.full((size,), hard[name], dtype=torch.float64) for name in ("diag", "weight", "coord"))
    # All coordinates equal: K is all ones, and the determinant is known in closed form.
    exact = size * math.log(hard["diag"]) + math.log1p(size * hard["weight"] ** 2 / hard["diag"])
    error = abs(float(LaplaceCovariance(diag, weight, coord).logdet()) - exact) / abs(exact)
    good = error < ROUNDING
    return Finding(
        (
            f"Hard case, D = {size}: all coordinates equal, d = {hard['diag']:g}, w = {hard['weight']:g}. The log "
            f"determinant agrees with its closed form {'up to rounding' if good else f'to {error:.0e}'} in float64.",
            "Any d above zero will do: the recursion used here has only sums and products of numbers that are not "
            "negative, so it needs no further limits, for equal coordinates neither.",
        ),
        Verdict.HOLDS if good else Verdict.NOT_SHOWN,
        "A small positive floor is enough." if good else "Accuracy is lost in the hard case.",
        ANY_SIZE,
    )


CLAIMS = (
    Claim(
        "tridiagonal",
        "The inverse covariance is tridiagonal",
        lambda results: "The covariance is dense, but its inverse has three diagonals only.",
        "Introduction; Method, Laplace Covariance Model; appendix on the Markov random field",
        "python -m benchmarks.claims",
        "a few seconds",
        (),
        _tridiagonal,
    ),
    Claim(
        "exact-likelihood",
        "Exact likelihood in D log D time",
        lambda results: "Log-likelihood and log determinant are exact, without dense matrices, in O(D log D) time.",
        "Abstract; Method; appendix on generator training (Kalman filter)",
        "python -m benchmarks --only speed",
        "minutes and the packages celerite2 and pyro-ppl",
        (SPEED,),
        _exact_likelihood,
    ),
    Claim(
        "frobenius",
        "The Frobenius objective without dense matrices",
        lambda results: (
            "The squared Frobenius distance to the empirical covariance splits into sums over the kernel "
            "that prefix and suffix sums give in O(D log D) time."
        ),
        "Method; appendices on the Frobenius objective and on prefix sums",
        "python -m benchmarks --only speed",
        "minutes and the packages celerite2 and pyro-ppl",
        (SPEED,),
        _implicit_frobenius,
    ),
    Claim(
        "stability",
        "A floor on the diagonal is enough for stable numbers",
        lambda results: "The diagonal term, positive by construction, makes the covariance numerically stable.",
        "Method, Laplace Covariance Model",
        "python -m benchmarks.claims",
        "a few seconds",
        (),
        _stable,
    ),
)
