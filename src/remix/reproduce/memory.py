"""The paper's memory table from files and processes: four vectors per layer against a dense covariance.

Bytes of a saved model are those of its file, bytes of the process are measured in a fresh one. Only the dense column
is computed: 4 (D^2 + D) bytes, the matrix and the mean in float32.

``python -m remix.reproduce.memory FILE`` is that process: it prints what a saved Laplace normal takes.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.reproduce.targets import Listener, Reproduction
from remix.support.files import write_text
from remix.support.machine import forget_peak, peak_bytes, resident_bytes
from remix.support.text import as_csv

__all__ = ["TAKES", "dense_bytes", "reproduce"]

TAKES = ()
MAPS = {
    "layer1, 64 x 56 x 56": 200_704,
    "layer2, 128 x 28 x 28": 100_352,
    "layer3, 256 x 14 x 14": 50_176,
    "layer4, 512 x 7 x 7": 25_088,
}
PAPER = {200_704: 3.0625, 100_352: 1.53125, 50_176: 0.765625, 25_088: 0.3828125}  # MiB: 16 D bytes


def dense_bytes(size: int) -> int:
    """Bytes of a float32 covariance matrix and its mean."""
    return 4 * (size * size + size)


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    wanted.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, size in MAPS.items():
        rows.append(_measured(name, size, wanted.out / f"{name.split(',')[0]}.safetensors"))
        listener.say(f"{name}: {rows[-1]['file'] / 2**20:.4f} MiB in a file")
    write_text(wanted.out / "memory.json", json.dumps(rows, indent=1) + "\n")
    write_text(wanted.out / "memory.csv", as_csv(rows))
    page = _table(rows)
    write_text(wanted.out / "memory.md", page + "\n")
    listener.say(page)
    listener.say(f"written: {wanted.out}/memory.csv, .json, .md, and the models")
    return True


def _measured(name: str, size: int, path: Path) -> dict[str, Any]:
    """Save a model of D dimensions (its numbers do not matter for its size) and look at the file and at a process."""
    generator = torch.Generator().manual_seed(0)
    vectors = {key: torch.rand(size, generator=generator) + 0.1 for key in ("loc", "diag", "weight", "coord")}
    save_file(vectors, path)
    command = [sys.executable, "-m", "remix.reproduce.memory", str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(answer.stdout)
    return {
        "features": name,
        "D": size,
        "file": path.stat().st_size,
        "process, read": found["read"],
        "process, one row with gradient": found["evaluated"],
        "dense": dense_bytes(size),
        "paper": PAPER[size] * 2**20,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| features | D | paper, MiB | file, MiB | process after reading, MiB | one row with gradient, MiB "
        "| dense, GiB (computed) | dense / file |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = ("D", "paper", "file", "process, read", "process, one row with gradient", "dense")
    total: dict[str, Any] = {"features": "total", **{key: sum(row[key] for row in rows) for key in keys}}
    for row in [*rows, total]:
        mega = [row[key] / 2**20 for key in keys[1:5]]
        cells = [f"{row['D']:,}", f"{mega[0]:.4f}", f"{mega[1]:.4f}", f"{mega[2]:.2f}", f"{mega[3]:.2f}"]
        cells += [f"{row['dense'] / 2**30:.4f}", f"{row['dense'] / row['file']:,.0f}"]
        lines.append(f"| {row['features']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _probe(path: str) -> dict[str, int]:
    """Read a file with loc, diag, weight and coord (D,), evaluate one row.

    Returns:
        bytes that the process grew by when the file was read, and the most it grew by for the log-likelihood of one row
        and its gradient, results included.

    """
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
    print(json.dumps(_probe(sys.argv[1])))
