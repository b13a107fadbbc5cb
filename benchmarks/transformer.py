"""Speed and memory of inverting a ViT-B/16: a refinement step against the bare network, peaks over micro-batches, and
what a teacher and a checkpoint hold where adapters alone learn. Weights are random: only time and memory matter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import torch
from torch import nn

from benchmarks.inversion import STEP_LIMIT, refinement, threads
from benchmarks.inversion_problem import Problem
from remix.inversion import Knowledge, Schedule, Targets, frozen, optimise
from remix.laplace import LaplaceNormal
from remix.laplace.covariance import LaplaceCovariance
from remix.networks import Classifier, LinearHead, create_backbone, frozen_copy, seeded_backbone
from remix.networks.hooks import Hooks
from remix.statistics import Laplace, LayerStatistics
from remix.support.machine import forget_peak, peak_bytes

PEAK_LIMIT = 3.0  # GB of the process, in a task's inversion
HELD_LIMIT, SAVED_LIMIT = 1.2, 0.05  # of the network's own parameters
BATCH = 40  # images of the published inversion that go together


def make_problem(count: int, small: bool = False) -> Problem:
    """A ViT-B/16 (or a small one) with Laplace statistics at every place it watches, and ``count`` images to start."""
    told: dict[str, Any] = {"model_type": "vit"}
    if small:
        told |= {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32}
    backbone = seeded_backbone("transformer", 0, config=json.dumps(told)).eval()
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, *backbone.input_shape, generator=generator)
    watched = backbone.watched()
    with torch.no_grad(), Hooks(backbone, [point for point, _ in watched]) as hooks:
        backbone.pooled(images[:1])
        shapes = {point: tuple(hooks[point].shape[1:]) for point, _ in watched}
    layers = {}
    for point, view in watched:
        dim = view.dim(shapes[point])
        weight, coord = torch.rand(dim, generator=generator), torch.rand(dim, generator=generator).cumsum(0)
        normal = LaplaceNormal(torch.zeros(dim), LaplaceCovariance(torch.ones(dim), weight, coord))
        layer = LayerStatistics(
            point, view, shapes[point], 1000, normal.mean, normal.variance, {"laplace": Laplace(normal)}
        )
        layers[layer.key] = layer
    features = torch.randn(count, backbone.feature_dim, generator=generator)
    targets = Targets(torch.zeros(count, dtype=torch.int64), features)
    return Problem(Knowledge(backbone, layers), images, targets, "laplace")


def peak_in_this_process(count: int, micro_batch: int, small: bool) -> int:
    """Most memory of a fresh process, network and all, in a refinement step."""
    problem = make_problem(count, small)
    forget_peak()
    with frozen(*problem.knowledge.networks):
        optimise(problem.refinement(Schedule(1, 0.1), micro_batch), torch.Generator().manual_seed(0))
    return peak_bytes()


def peak(count: int, micro_batch: int, small: bool) -> int:
    """The same, asked of such a process."""
    code = f"from benchmarks.transformer import *; print(peak_in_this_process({count}, {micro_batch}, {small}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(answer.stdout)


def held() -> dict[str, float]:
    """Parameters of teacher and student with adapters, and those of a checkpoint, over those of the bare network."""
    with torch.device("meta"):
        backbone = create_backbone("transformer", config='{"model_type": "vit"}', adapter="moe")
        student = Classifier(backbone, LinearHead(768, [20]))
        teacher = frozen_copy(student, [*backbone.trainable(), student.head])
    bare = sum(value.numel() for name, value in backbone.named_parameters() if ".adapter." not in name)
    both = {id(value): value.numel() for network in (student, teacher) for value in network.parameters()}
    saved = sum(value.numel() for value in nn.ModuleList([*backbone.trainable(), student.head]).parameters())
    return {
        "network": bare,
        "teacher and student / network": sum(both.values()) / bare,
        "checkpoint / network": saved / bare,
    }


def measure(quick: bool) -> dict[str, object]:
    """The whole benchmark; ``quick`` only shows that it runs, with a small network."""
    count, seconds = (2, 0.2) if quick else (4, 60.0)
    with threads(1):
        problem = make_problem(count, quick)
        step = refinement(problem, seconds, straightforward=False)
    batch, sizes = (4, [4, 1]) if quick else (BATCH, [10, 5])
    return {
        "images": count,
        "places": len(problem.prior_layers),
        "step": step,
        "batch": batch,
        "peaks": [{"micro-batch": size, "bytes": peak(batch, size, quick)} for size in sizes],
        "held": held(),
        "limits": {"step": STEP_LIMIT, "peak": PEAK_LIMIT, "held": HELD_LIMIT, "saved": SAVED_LIMIT},
    }
