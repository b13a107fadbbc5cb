"""``python -m benchmarks.fit_times --data DIR``: seconds and memory of a fit at the three sizes that were asked for."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import features
from benchmarks.features import FeatureSet
from benchmarks.timing import peak_extra_bytes
from remix.laplace import fit

LIMITS = {384: 3.0, 16_384: 5.0, 200_704: 40.0}
NAMES = {
    384: "ResNet-34 on Imagenette, pooled layers 2, 3",
    16_384: "CIFAR ResNet-14, layer 1 map, N = 200",
    200_704: "ResNet-34 on Imagenette, layer 1 map",
}


def load(size: int, data: Path, cache: Path) -> FeatureSet:
    source = features.cifar if size == 16_384 else features.imagenette
    return next(found for found in source(data, cache) if found.name == NAMES[size])


def one(size: int, data: Path, cache: Path) -> dict[str, float | str | None]:
    """Best of three, and the peak of the first call, in a process of its own."""
    rows = load(size, data, cache)
    best, extra = float("inf"), None
    for number in range(3):
        start = time.perf_counter()
        if number:
            fit(rows.fit, layout=rows.layout, transform=None)
        else:
            extra = peak_extra_bytes(lambda: fit(rows.fit, layout=rows.layout, transform=None))
        best = min(best, time.perf_counter() - start)
    unit = rows.fit.numel() * 4
    return {
        "features": rows.name,
        "N": len(rows.fit),
        "D": size,
        "seconds": best,
        "limit": LIMITS[size],
        "extra memory in sizes of the data": None if extra is None else extra / unit,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_times", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of real data")
    parser.add_argument("--cache", type=Path, default=Path("runs/features"), help="folder for extracted features")
    parser.add_argument("--out", type=Path, default=Path("docs/bench"), help="folder for the results")
    parser.add_argument("--size", type=int, choices=LIMITS, help="only this one, as JSON on standard output")
    options = parser.parse_args()
    if options.size:
        print(json.dumps(one(options.size, options.data, options.cache)))
        return
    results = []
    for size in LIMITS:
        command = [sys.executable, "-m", "benchmarks.fit_times", "--data", str(options.data)]
        command += ["--cache", str(options.cache), "--size", str(size)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append(json.loads(answer.stdout))
        print(results[-1], flush=True)
    (options.out / "fit_times.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
