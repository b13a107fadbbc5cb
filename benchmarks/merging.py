"""What becomes of Laplace covariances that are merged task after task: refitted from nothing, or also from what was.

    python -m benchmarks.merging DATA [--out docs/bench/merging.json]

Real networks on real images: every BatchNorm input of a ResNet-20 (CIFAR-10 weights) over CIFAR-100 in ten tasks of two
classes, and of a ResNet-34 (ImageNet weights) over Imagenette in five. After the last task each model is compared with
the covariance of all tasks, which is known exactly: the error of its correlations (Frobenius norm, relative), and the
expected negative log-likelihood per coordinate less that of independent coordinates. `once` is one fit to that
covariance itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from remix.data import load
from remix.laplace import LaplaceNormal, fit_covariance
from remix.networks import Backbone, load_classifier
from remix.statistics import batchnorm_points, measure_layers, mixture

CASES = {
    "ResNet-20, CIFAR-100": ("resnet20", "cifar10_resnet20", "cifar100", {}, 20, 2, 100),
    "ResNet-34, Imagenette": ("resnet34", "resnet34_imagenette10_fp16", "imagenette", {"size": 128}, 10, 2, 60),
}
Moments = tuple[float, Tensor, Tensor]  # number of classes, mean, covariance


def tasks(backbone: Backbone, root: Path, name: str, options: dict, classes: int, each: int, images: int) -> Iterator:
    """By task, the dense statistics of every BatchNorm input."""
    source = root / name if name == "imagenette" else root
    splits = load("folder" if name == "imagenette" else name, source, **options)
    for first in range(0, classes, each):
        parts = [splits.train.of_classes([label]) for label in range(first, first + each)]
        pixels = torch.cat([part.batch(torch.arange(min(images, len(part))))[0] for part in parts])
        batches = splits.normalisation.normalise(pixels).split(50)
        yield measure_layers(backbone, batches, batchnorm_points(backbone), kinds=("dense",))


def merged(parts: list[Moments], warm: bool) -> tuple[LaplaceNormal, float]:
    """The model after all tasks, and the seconds that merging took."""
    classes, mean, covariance = parts[0]
    began = time.perf_counter()
    model = fit_covariance(covariance.double(), mean.double())
    for weight, mean, covariance in parts[1:]:
        new = fit_covariance(covariance.double(), mean.double())
        both = mixture([(classes, model.loc, model.covariance_matrix), (weight, new.loc, new.covariance_matrix)])
        known = [model.covariance, new.covariance] if warm else []
        model, classes = fit_covariance(both.covariance(), both.mean, known=known), classes + weight
    return model, time.perf_counter() - began


def compare(model: LaplaceNormal, target: Tensor) -> tuple[float, float]:
    """Relative error of the correlations, and expected NLL per coordinate less that of independent ones."""
    scale = target.diagonal().rsqrt()
    wanted, found = (scale[:, None] * matrix * scale for matrix in (target, model.covariance_matrix.double()))
    excess = 0.5 * (torch.logdet(found) + torch.linalg.solve(found, wanted).trace() - len(found)) / len(found)
    off = wanted - torch.eye(len(wanted), dtype=wanted.dtype)
    return float((found - wanted).norm() / off.norm()), float(excess)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/bench/merging.json"))
    given = parser.parse_args()
    results = {}
    for case, (network, weights, *data) in CASES.items():
        backbone = load_classifier(network, given.data / "weights" / f"{weights}.safetensors").backbone.float().eval()
        measured = list(tasks(backbone, given.data, *data))
        rows = []
        for key in measured[0]:
            parts = [(float(data[4]), task[key].mean, task[key].covariance) for task in measured]
            target = mixture([(weight, mean.double(), matrix.double()) for weight, mean, matrix in parts])
            once = fit_covariance(target.covariance(), target.mean)
            cold, warm = merged(parts, False), merged(parts, True)
            found = {"once": once, "cold": cold[0], "warm": warm[0]}
            row = {name: compare(model, target.covariance()) for name, model in found.items()}
            row["seconds"] = (cold[1], warm[1])
            rounded = {name: [round(value, 4) for value in values] for name, values in row.items()}
            rows.append({"layer": key, "dim": len(target.mean), **rounded})
        results[case] = rows
        print(f"{case}: {len(rows)} layers, {len(measured)} tasks")
        for name in ("once", "cold", "warm"):
            error, nll = (sum(row[name][i] for row in rows) / len(rows) for i in (0, 1))
            print(f"  {name:5} correlation error {error:.3f}   NLL over the diagonal {nll:+.4f}")
        better = [sum(row["warm"][i] < row["cold"][i] - 1e-9 for row in rows) for i in (0, 1)]
        worse = [sum(row["warm"][i] > row["cold"][i] + 1e-9 for row in rows) for i in (0, 1)]
        print(f"  warm better than cold: error {better[0]}, NLL {better[1]} layers; worse: {worse[0]}, {worse[1]}")
        times = [sum(row["seconds"][i] for row in rows) for i in (0, 1)]
        print(f"  seconds of all fits: cold {times[0]:.1f}, warm {times[1]:.1f}", flush=True)
    lines = {case: ",\n".join(f"  {json.dumps(row)}" for row in rows) for case, rows in results.items()}
    text = ",\n".join(f" {json.dumps(case)}: [\n{rows}\n ]" for case, rows in lines.items())
    given.out.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    main()
