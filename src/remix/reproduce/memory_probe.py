"""``python -m remix.reproduce.memory_probe FILE``: what a saved Laplace normal takes in a process.

Prints JSON: bytes that the process grew by when the file was read, and the most it grew by for the log-likelihood of
one row and its gradient, results included.
"""

from __future__ import annotations

import gc
import json
import sys

import torch
from safetensors.torch import load_file

from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.support.machine import forget_peak, peak_bytes, resident_bytes

__all__ = ["probe"]


def probe(path: str) -> dict[str, int]:
    """Read a file with loc, diag, weight and coord (D,), evaluate one row."""
    _evaluate(LaplaceNormal(torch.zeros(64), LaplaceCovariance(torch.ones(64), torch.ones(64), torch.zeros(64))))
    gc.collect()
    empty = resident_bytes()
    vectors = {name: vector.clone() for name, vector in load_file(path).items()}
    loc = vectors.pop("loc")
    loaded = resident_bytes()
    forget_peak()
    _evaluate(LaplaceNormal(loc, LaplaceCovariance(**vectors, validate_args=False), validate_args=False))
    return {"read": max(0, loaded - empty), "evaluated": max(0, peak_bytes() - empty)}


def _evaluate(normal: LaplaceNormal) -> None:
    row = torch.zeros(1, len(normal.loc), requires_grad=True)
    normal.log_prob(row).sum().backward()


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])))
