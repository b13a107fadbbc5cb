"""Fitting and evaluating up to a million dimensions, rows read from a memory-mapped file; merging two fitted models.

Every size runs in a process of its own, so that its peak of memory is its own. Times are processor seconds beside
those of the clock: the first do not depend on what else the machine does.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remix.laplace import LaplaceCovariance, LaplaceNormal, fit, kernels, merge
from remix.support.machine import peak_bytes

HELD_OUT = 16
BLOCK_NUMBERS = 1 << 23  # written and evaluated at a time
OVER_D = ((16, 25, 25), (32, 32, 32), (10, 100, 100), (20, 128, 125), (64, 125, 125))
D_ROWS = 64
OVER_N = (250, 500, 1000, 2000)
N_LAYOUT = (32, 32, 32)
LARGE = {"layout": (64, 125, 125), "rows": 2000, "memory": 3 << 29}
MERGED = (64, 56, 56)


def truth(layout: tuple[int, int, int], seed: int = 0) -> LaplaceNormal:
    """A Laplace normal whose neighbours on the line are neighbours in the map: row by row, channel after channel."""
    size = math.prod(layout)
    generator = torch.Generator().manual_seed(seed)
    loading = 0.6 + 0.35 * torch.rand(size, generator=generator)
    coord = (0.05 + 0.3 * torch.rand(size, generator=generator, dtype=torch.float64)).cumsum(0)
    coord = (coord - coord[-1] / 2).float()
    scale = torch.rand(size, generator=generator) + 0.5
    covariance = LaplaceCovariance(scale**2 * (1 - loading**2), scale * loading, coord)
    return LaplaceNormal(torch.randn(size, generator=generator), covariance, validate_args=False)


def write_rows(path: Path, normal: LaplaceNormal, rows: int) -> None:
    """Draws of ``normal`` as a float32 file (rows, D)."""
    generator = torch.Generator().manual_seed(1)
    block = block_rows(len(normal.loc))
    with path.open("wb") as file:
        for start in range(0, rows, block):
            drawn = normal.sample((min(block, rows - start),), generator)
            file.write(memoryview(drawn.numpy()))
    kernels.release()


def block_rows(size: int) -> int:
    return max(1, BLOCK_NUMBERS // size)


class Clock:
    """Seconds of the clock and of the processor."""

    def __enter__(self) -> Clock:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began[0]
        self.processor = time.process_time() - self._began[1]

    def record(self) -> dict[str, float]:
        return {"seconds": self.seconds, "processor seconds": self.processor}


def fit_and_evaluate(layout: tuple[int, int, int], rows: int, memory: int, folder: Path) -> dict[str, Any]:
    """One size: the fit, the likelihood of all rows, and how much of the true gain over the diagonal was found."""
    size = math.prod(layout)
    path = folder / "rows.f32"
    write_rows(path, truth(layout), rows)
    x = np.memmap(path, np.float32, "r", shape=(rows, size))
    with Clock() as fitting:
        normal = fit(x, layout=layout, transform=None, memory=memory)
    with Clock() as evaluating:
        total = 0.0
        for start in range(0, rows, block_rows(size)):
            read = np.fromfile(path, np.float32, block_rows(size) * size, offset=4 * start * size)
            total += float(normal.log_prob(torch.from_numpy(read).reshape(-1, size)).double().sum())
    peak = peak_bytes()
    report = normal.report
    assert report is not None
    real = truth(layout)
    held_out = real.sample((HELD_OUT,), torch.Generator().manual_seed(2))
    diagonal = torch.distributions.Normal(real.loc, real.variance.sqrt(), validate_args=False)
    base = float(diagonal.log_prob(held_out).sum(1).mean())
    gains = [(float(p.log_prob(held_out).mean()) - base) / size for p in (normal, real)]
    path.unlink()
    return {
        "D": size,
        "N": rows,
        "bytes of rows": 4 * rows * size,
        "peak bytes of the process": peak,
        "fit": fitting.record(),
        "evaluate all rows": evaluating.record(),
        "order": report.start,
        "phases": report.seconds,
        "train gain": report.train_gain,
        "held-out gain": gains[0],
        "held-out gain of the truth": gains[1],
    }


def merging(layout: tuple[int, int, int], rows: int, steps: int) -> dict[str, Any]:
    """Two models fitted to draws of two different truths, merged by exact inner products."""
    truths = [truth(layout, seed) for seed in (0, 1)]
    fits = []
    for number, real in enumerate(truths):
        drawn = real.sample((rows,), torch.Generator().manual_seed(10 + number))
        fits.append(fit(drawn, layout=layout, transform=None))
        del drawn
    size = math.prod(layout)
    with Clock() as inner:
        fits[0].covariance.inner(fits[1].covariance)
    with Clock() as whole:
        merged = merge([(0.5, fits[0]), (0.5, fits[1])], exact=True, steps=steps)
    rows_of = [real.sample((HELD_OUT,), torch.Generator().manual_seed(20)) for real in truths]
    mixed = torch.cat(rows_of)
    deviation = torch.distributions.Normal(merged.loc, merged.variance.sqrt(), validate_args=False)
    base = float(deviation.log_prob(mixed).sum(1).mean())
    gain = lambda p: (float(p.log_prob(mixed).mean()) - base) / size  # noqa: E731
    return {
        "D": size,
        "steps": steps,
        "one exact inner product": inner.record(),
        "merge": whole.record(),
        "peak bytes of the process": peak_bytes(),
        "gain of the merged model over its diagonal, rows of both": gain(merged),
        "the same for either model alone": [gain(p) for p in fits],
    }


def exponent(over: str, work: str, rows: list[dict[str, Any]]) -> float:
    """Slope of the logarithm of processor seconds over the logarithm of a size, by least squares."""
    x = np.log([row[over] for row in rows])
    y = np.log([row[work]["processor seconds"] for row in rows])
    return float(np.polyfit(x, y, 1)[0])


def alone(function: str, **arguments: Any) -> dict[str, Any]:
    """A function of this file in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", json.dumps({"function": function, **arguments})]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    print(answer.stdout.strip().splitlines()[-1], flush=True)
    found: dict[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
    return found


def measure(quick: bool) -> dict[str, Any]:
    """The whole benchmark; ``quick`` only shows that it runs."""
    memory = 4 << 30
    results: dict[str, Any] = {
        "over D": [alone("fit", layout=layout, rows=D_ROWS, memory=memory) for layout in OVER_D[: 2 if quick else 5]],
        "over N": [alone("fit", layout=N_LAYOUT, rows=rows, memory=memory) for rows in OVER_N[: 2 if quick else 4]],
    }
    results["exponents of processor seconds"] = {
        f"{work} over {over}": exponent(over, work, results[f"over {over}"])
        for over in ("D", "N")
        for work in ("fit", "evaluate all rows")
    }
    large = {"layout": (10, 100, 100), "rows": 500, "memory": 200 << 20} if quick else LARGE
    results["large"] = alone("fit", **large)
    results["merging"] = alone("merge", layout=(16, 25, 25) if quick else MERGED, rows=100, steps=8)
    return results


def main() -> None:
    wanted = json.loads(sys.argv[1])
    layout = tuple(wanted["layout"])
    if wanted["function"] == "merge":
        print(json.dumps(merging(layout, wanted["rows"], wanted["steps"])))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(fit_and_evaluate(layout, wanted["rows"], wanted["memory"], Path(folder))))


if __name__ == "__main__":
    main()
