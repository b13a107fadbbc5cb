"""Speed and memory of `remix.inversion`: one refinement step against the bare network, a whole inversion against the
straightforward form, and peak memory over micro-batches.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.inversion_baseline import Straightforward
from benchmarks.inversion_problem import Problem, clock, make_problem
from benchmarks.timing import Work, interleaved, peak_extra_bytes
from remix.inversion import (
    BatchAverage,
    LayerwiseSettings,
    LoopState,
    Schedule,
    StepReport,
    frozen,
    invert_layerwise,
    optimise,
)
from remix.inversion.passing_moments import moment_gradient, moments
from remix.inversion.watch import Watch
from remix.laplace import kernels

STEP_LIMIT = 1.25  # a refinement step, in bare forward + backward passes
LAYERWISE_GAIN = 2.0  # the whole inversion, against the straightforward form
REPLACED = "BatchNorm as torch does it, forward and backward"


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def bare(problem: Problem) -> Work:
    """Forward to the pooled features and backward to the input; no gradients of parameters."""

    def work() -> Tensor:
        x = problem.images.detach().requires_grad_()
        return torch.autograd.grad(problem.backbone.pooled(x).square().mean(), x)[0]

    return work


def refinement(problem: Problem, seconds: float, straightforward: bool) -> dict[str, float]:
    """Best seconds of a step of the real loop, of the bare passes and of the straightforward step, taken in turns."""
    best = {"bare": float("inf"), "step": float("inf")}
    network = bare(problem)
    end = time.perf_counter() + seconds

    def note(name: str, since: float) -> None:
        best[name] = min(best.get(name, float("inf")), clock() - since)

    def after_step(report: StepReport) -> None:
        nonlocal started
        note("step", started)
        started = clock()
        network()
        note("bare", started)
        if straightforward and report.step % 2 == 0:  # the slowest of the three: less often
            with Straightforward(problem) as plain:
                plain.refine(1)
                started = clock()
                plain.refine(1)
            note("straightforward", started)
        if report.step >= 3 and time.perf_counter() > end:
            raise KeyboardInterrupt  # how a run is ended between two steps
        started = clock()

    with frozen(*problem.knowledge.networks):
        network()
        task = problem.refinement(Schedule(10_000, 0.4))
        started = clock()
        optimise(task, torch.Generator().manual_seed(0), progress=after_step)
    return best


def breakdown(problem: Problem, seconds: float) -> dict[str, float]:
    """What the step adds to the bare passes and what it replaces, each part alone, on the network's activations."""
    with frozen(*problem.knowledge.networks), torch.no_grad():
        layers, terms = problem.prior_layers, problem.terms()[1:]
        points = [layer.point for layer in layers]
        shared = problem.terms()[2].loss.averages  # all products of the prior serve the statistics too
        with Watch(problem.backbone, problem.backbone.pooled, shared, points).run(
            problem.images, problem.images, slice(0, len(problem.images))
        ) as seen:
            activations = [seen.activations[point] for point in points]
            measured = {average.key: BatchAverage(average, average(seen)) for average in shared}
            readings = [[measured[average.key] for average in term.loss.averages] for term in terms]
    norms = [problem.backbone.get_submodule(layer.point.module) for layer in layers]
    origins = [layer.mean.float() for layer in layers]
    maps = [(torch.rand(layer.dim), torch.rand(layer.dim)) for layer in layers]
    slopes = [torch.randn(1 + layer.dim, layer.dim) for layer in layers]
    gradients = [torch.randn_like(x) for x in activations]

    def forward() -> None:
        for x, origin, then in zip(activations, origins, maps, strict=True):
            moments(x, 1, origin, True, then)

    def backward() -> None:
        for x, gradient, slope, origin, then in zip(activations, gradients, slopes, origins, maps, strict=True):
            moment_gradient(x, 1, origin, slope, gradient, then[0])

    def batch_norms() -> None:
        with frozen(*problem.knowledge.networks):
            for x, gradient, norm in zip(activations, gradients, norms, strict=True):
                leaf = x.detach().requires_grad_()
                torch.autograd.grad(norm(leaf), leaf, gradient)

    def evaluate() -> None:
        leaves = [[BatchAverage(r.by, r.average.detach().requires_grad_()) for r in group] for group in readings]
        values = [term.loss.value(group, len(problem.images)) for term, group in zip(terms, leaves, strict=True)]
        torch.autograd.grad(torch.stack(values).sum(), [r.average for group in leaves for r in group])

    images = problem.images.clone()
    state, gradient = LoopState([images]), torch.randn_like(images)
    works: dict[str, Work] = {
        REPLACED: batch_norms,
        "moments and BatchNorm in one pass, forward": forward,
        "gradients of both in one pass, backward": backward,
        "31 + 31 terms from the moments, and their slopes": evaluate,
        "Adam": lambda: state.move([gradient], 1e-3),
        "keeping the best": lambda: state.keep_as_best(0.0),
    }
    return interleaved(works, seconds)


def layerwise(problem: Problem, block_steps: int, refine_steps: int) -> dict[str, float]:
    """Seconds of a whole inversion, ours and the straightforward one, of equally many steps, one after the other."""
    settings = LayerwiseSettings(
        block=Schedule(block_steps, 0.8), refine=Schedule(refine_steps, 0.4), batch=len(problem.images)
    )
    with frozen(*problem.knowledge.networks):
        bare(problem)()  # memory for the activations of so many images is there for both
    began = clock()
    invert_layerwise(problem.knowledge, problem.targets, torch.Generator().manual_seed(0), settings)
    ours = clock() - began
    with frozen(*problem.knowledge.networks), Straightforward(problem) as baseline:
        began = clock()
        baseline.invert(block_steps, refine_steps)
        plain = clock() - began
    return {"remix": ours, "straightforward": plain, "of it, runs for shapes": baseline.shape_seconds}


def peak(count: int, micro_batch: int, straightforward: bool = False) -> int | None:
    """Peak memory of one refinement step beyond what was there before, in bytes, measured in a fresh process."""
    call = f"peak_in_this_process({count}, {micro_batch}, {straightforward})"
    code = f"from benchmarks.inversion import peak_in_this_process; print({call})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return None if "None" in answer.stdout else int(answer.stdout)


def peak_in_this_process(count: int, micro_batch: int, straightforward: bool) -> int | None:
    """What `peak` asks of the fresh process."""
    problem = make_problem(count, "dense")  # needs no fit, and enters the objective as the Laplace covariance does
    kernels.release()
    with frozen(*problem.knowledge.networks):
        if straightforward:
            with Straightforward(problem) as plain:
                return peak_extra_bytes(lambda: plain.refine(1))
        task = problem.refinement(Schedule(1, 0.4), micro_batch)
        return peak_extra_bytes(lambda: optimise(task, torch.Generator().manual_seed(0)))


def measure(quick: bool) -> dict[str, object]:
    """The whole benchmark; ``quick`` only shows that it runs."""
    batch, seconds = (8, 0.5) if quick else (128, 6.0)
    many, steps = (16, 1) if quick else (1000, 1)
    problem = make_problem(batch)
    channels_last = problem.channels_last()
    steps_of = []
    for count in dict.fromkeys((torch.get_num_threads(), 1)):
        with threads(count):
            row = refinement(problem, seconds, straightforward=True)
            steps_of.append({"threads": count, "format": "contiguous", **row})
            row = refinement(channels_last, seconds / 2, straightforward=False)
            steps_of.append({"threads": count, "format": "channels last", **row})
    held, sizes = (16, [4]) if quick else (128, [128, 32, 8])
    return {
        "batch": batch,
        "refinement steps": steps_of,
        "breakdown": breakdown(problem, seconds / 3),
        "layer-wise": {
            "images": many,
            "steps per block": steps,
            "refinement steps": steps,
            "seconds": layerwise(problem.resized(many), steps, steps),
        },
        "memory": {
            "images": held,
            "micro-batch": [{"size": size, "bytes": peak(held, size)} for size in sizes],
            "straightforward": peak(held, held, straightforward=True),
        },
    }
