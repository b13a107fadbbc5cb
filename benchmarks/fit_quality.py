"""``python -m benchmarks.fit_quality [--data DIR] [--cache DIR] [--out DIR]``: how well each covariance model fits.

Held-out nats per dimension over the diagonal Gaussian with the same mean and variances, seconds and numbers kept, on
real features. Finished lines are kept in the result file, so a killed run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import covariance_models as models
from benchmarks import features
from benchmarks.features import FeatureSet
from remix.laplace import FrobeniusRecipe, LaplaceNormal, fit

DENSE_ROWS = 6000  # Gram matrices of more rows are not affordable here


def gain_of(normal: LaplaceNormal, data: FeatureSet) -> float:
    return float(normal.log_prob(data.held_out).mean()) / data.fit.shape[1]


def measure(data: FeatureSet) -> dict[str, dict[str, float]]:
    """All models on one set: {model: {nats, seconds, vectors}}, nats being absolute log-likelihoods per dimension."""
    size = data.fit.shape[1]
    results: dict[str, dict[str, float]] = {}

    def record(name: str, work: Callable[[], float], vectors: float) -> None:
        start = time.perf_counter()
        nats = work()
        results[name] = {"nats": nats, "seconds": time.perf_counter() - start, "vectors": vectors}

    plain: list[LaplaceNormal] = []

    def ours() -> float:
        plain.append(fit(data.fit, layout=data.layout, transform=None))
        return gain_of(plain[0], data)

    record("ours", ours, 4)
    mean, variance = plain[0].loc, plain[0].variance
    log_variance = variance.double().log()
    u, held = (models.standardise(rows, mean, variance).double() for rows in (data.fit, data.held_out))
    record("diagonal", lambda: models.diagonal(held, log_variance), 2)
    if data.layout and min(data.layout[1:]) >= 4:
        record("ours + DCT", lambda: gain_of(fit(data.fit, layout=data.layout, transform="dct"), data), 4)
    record(
        "ours, thorough",
        lambda: gain_of(fit(data.fit, layout=data.layout, transform=None, thorough=True), data),
        4,
    )
    recipe = FrobeniusRecipe.long_vectors(len(data.fit)) if data.layout else FrobeniusRecipe()
    record("published recipe", lambda: gain_of(fit(data.fit, "frobenius", recipe=recipe), data), 4)
    for factors in (2, 8):
        if factors < size:
            record(
                f"factor analysis, k = {factors}",
                lambda k=factors: models.low_rank(held, log_variance, *models.factor_analysis(u, k)),  # type: ignore[misc]
                2 + factors,
            )
    rows = u[:DENSE_ROWS]
    record("dense, Ledoit-Wolf", lambda: models.ledoit_wolf(rows, held, log_variance), 2 + size)
    return results


def sets(data: Path | None, cache: Path) -> list[Callable[[], list[FeatureSet]]]:
    sources: list[Callable[[], list[FeatureSet]]] = [features.digits]
    if data is not None:
        sources += [lambda: features.cifar(data, cache), lambda: features.imagenette(data, cache)]
    return sources


MODELS = (
    "published recipe",
    "ours",
    "ours, thorough",
    "ours + DCT",
    "factor analysis, k = 2",
    "factor analysis, k = 8",
    "dense, Ledoit-Wolf",
)


def table(results: dict[str, Any]) -> str:
    """Markdown: gains over the diagonal with seconds in brackets."""
    lines = ["| features | N | D | " + " | ".join(MODELS) + " |", "|---|---|---|" + "---|" * len(MODELS)]
    for name, entry in results.items():
        base = entry["models"]["diagonal"]["nats"]
        cells = []
        for model in MODELS:
            found = entry["models"].get(model)
            cells.append(f"{found['nats'] - base:+.3f} ({found['seconds']:.1f} s)" if found else "-")
        lines.append(f"| {name} | {entry['N']:,} | {entry['D']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_quality", description=__doc__)
    default = os.environ.get("REMIX_DATA")
    parser.add_argument("--data", type=Path, default=Path(default) if default else None, help="folder of real data")
    parser.add_argument("--cache", type=Path, default=Path("runs/features"), help="folder for extracted features")
    parser.add_argument("--out", type=Path, default=Path("docs/bench"), help="folder for the results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "fit.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for source in sets(options.data, options.cache):
        for data in source():
            if data.name in results:
                continue
            print(f"{data.name}: {tuple(data.fit.shape)}", flush=True)
            entry = {"N": data.fit.shape[0], "D": data.fit.shape[1], "held-out rows": len(data.held_out)}
            results[data.name] = entry | {"threads": torch.get_num_threads(), "models": measure(data)}
            file.write_text(json.dumps(results, indent=1) + "\n")
    page = table(results)
    (options.out / "fit.md").write_text(page + "\n")
    print(page)


if __name__ == "__main__":
    main()
