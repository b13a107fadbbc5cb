"""Merging the covariances of two tasks, and the claim about it.

``python -m benchmarks.claims.merging`` measures on drawn covariances (seconds) and writes docs/claims/merging.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.claims.claim import MINI, Claim, Finding, Verdict
from benchmarks.claims.files import Results
from benchmarks.claims.seeds import judge
from remix.laplace import LaplaceCovariance, LaplaceNormal, merge

FILE = "claims/merging.json"
DIM, SEEDS, OLD_CLASSES, NEW_CLASSES, SHIFT = 256, 10, 30, 10, 0.5


def _draw(generator: torch.Generator, shift: float) -> LaplaceNormal:
    """Unit variances, correlations of a random order, and means that are ``shift`` from zero on average."""

    def noise() -> torch.Tensor:
        return torch.randn(DIM, generator=generator, dtype=torch.float64)

    loading = torch.tanh(noise() + 1.0)
    coord = torch.cumsum(0.3 * torch.rand(DIM, generator=generator, dtype=torch.float64), 0)
    coord = coord[torch.randperm(DIM, generator=generator)]
    return LaplaceNormal(shift * noise(), LaplaceCovariance(1 - loading**2 + 1e-3, loading, coord))


def measure() -> dict[str, Any]:
    """Relative Frobenius errors against the weighted covariance, by seed."""
    total = OLD_CLASSES + NEW_CLASSES
    shares = (OLD_CLASSES / total, NEW_CLASSES / total)
    errors: dict[str, dict[str, float]] = {"old model kept": {}, "merged": {}, "diagonal": {}, "means left out": {}}
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        tasks = [_draw(generator, SHIFT) for _ in range(2)]
        dense = [task.covariance_matrix for task in tasks]
        weighted = shares[0] * dense[0] + shares[1] * dense[1]
        centred = [LaplaceNormal(torch.zeros_like(task.mean), task.covariance) for task in tasks]
        merged = merge(list(zip(shares, centred, strict=True)), "frobenius").covariance_matrix
        gap = tasks[0].mean - tasks[1].mean
        complete = weighted + shares[0] * shares[1] * torch.outer(gap, gap)
        for name, matrix, target in (
            ("old model kept", dense[0], weighted),
            ("merged", merged, weighted),
            ("diagonal", torch.diag(weighted.diagonal()), weighted),
            ("means left out", weighted, complete),
        ):
            errors[name][str(seed)] = float(torch.linalg.norm(matrix - target) / torch.linalg.norm(target))
    return {
        "command": "python -m benchmarks.claims.merging",
        "D": DIM,
        "old classes": OLD_CLASSES,
        "new classes": NEW_CLASSES,
        "standard deviation of the means": SHIFT,
        "relative Frobenius error by seed": errors,
    }


def _examine(results: Results) -> Finding:
    data = results.json(FILE)
    percent = {
        name: {int(seed): 100 * value for seed, value in values.items()}
        for name, values in data["relative Frobenius error by seed"].items()
    }
    better = judge(
        percent["old model kept"], percent["merged"], ("Keeping the old model", "merging"), "% of relative error"
    )
    if better is None:
        raise ValueError(f"{FILE} has no seed in common")
    means = {name: sum(values.values()) / len(values) for name, values in percent.items()}
    good = better.sign > 0
    return Finding(
        (
            f"Drawn covariances in different orders, D = {data['D']}, {data['old classes']} old and "
            f"{data['new classes']} new classes. Relative error to the weighted covariance: merged "
            f"{means['merged']:.0f} %, old model kept {means['old model kept']:.0f} %, correlations dropped "
            f"{means['diagonal']:.0f} %. {better.sentence}",
            "The formula leaves out that tasks have different means. With means that differ by a standard deviation of "
            f"{data['standard deviation of the means']:g} in every feature, the covariance of all "
            f"data is missed by {means['means left out']:.0f} %. `remix.laplace.merge` puts the missing term back.",
            "Whether it helps a learner over tasks was not measured apart from the rest.",
        ),
        Verdict.HOLDS_AT_MINI_SCALE if good else Verdict.NOT_SHOWN,
        "A refit keeps much of the weighted covariance, on drawn examples." if good else "The refit is not nearer.",
        MINI,
    )


CLAIMS = (
    Claim(
        "merging",
        "Covariances of tasks can be merged and fitted again",
        lambda results: (
            "The mean of old and new covariance, weighted by numbers of classes and fitted again, preserves "
            "the relations of features over tasks."
        ),
        "Method, integration into class-incremental learning",
        "python -m benchmarks.claims.merging",
        "a few seconds",
        (FILE,),
        _examine,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims.merging", description=__doc__)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the result files")
    target = parser.parse_args().docs / FILE
    target.write_text(json.dumps(measure(), indent=1) + "\n")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
