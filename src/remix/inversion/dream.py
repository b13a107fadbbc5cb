"""Running a strategy on a batch of targets, in chunks, on a frozen network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Checkpoint
from remix.inversion.phases import Phase, Progress, run_phases
from remix.inversion.targets import Targets
from remix.inversion.watch import frozen
from remix.laplace.normal import standard_normal

__all__ = ["Dream", "OnProgress", "chunks", "dream_in_chunks", "noise"]

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Dream:
    """Pseudo-samples.

    Attributes:
        images: (n, C, H, W), as the network receives them, or what its block ``start`` receives, (n, ...); fewer than
            asked for, perhaps none, after an interruption.
        labels: (n,).
        finished: whether the run came to its end.
        history: by phase, then by term, the values in every step.
        checkpoint: what to give to ``resume`` to go on, if it is not finished.
        start: the block that they enter the network at; 0 for images.

    """

    images: Tensor
    labels: Tensor
    finished: bool
    history: dict[str, dict[str, list[float]]]
    checkpoint: Checkpoint | None
    start: int = 0


def chunks(count: int, most: int) -> list[slice]:
    """Divide ``count`` samples into as few chunks of at most ``most`` as possible, of nearly equal size.

    Batch statistics of a small remainder would be poor ones; there is none.
    """
    if most < 1:
        raise ValueError(f"batch must be at least 1, got {most}")
    number = -(-count // most)
    edges = [round(i * count / number) for i in range(number + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def noise(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the dtype and on the device of another tensor."""
    return standard_normal(shape, generator, like.dtype, like.device)


def dream_in_chunks(
    knowledge: Knowledge,
    targets: Targets,
    batch: int,
    phases_of: Callable[[slice, str], list[Phase]],
    generator: torch.Generator,
    progress: OnProgress | None,
    resume: Checkpoint | None,
    show: Callable[[Tensor], Tensor] = lambda found: found,
) -> Dream:
    """Run a strategy's phases for every chunk of at most ``batch`` targets; the network is frozen meanwhile.

    ``phases_of`` goes from a chunk, and a prefix for names, to its phases, ``show`` from what they find to what the
    network receives.
    """
    parts = chunks(len(targets), batch)
    phases = []
    for i, part in enumerate(parts):
        phases += phases_of(part, f"chunk {i + 1}/{len(parts)}: " if len(parts) > 1 else "")
    empty = knowledge.like.new_empty(0, *knowledge.block_shapes[knowledge.start])
    with frozen(*knowledge.networks):
        reached = run_phases(phases, generator, progress=progress, resume=resume)
        images = torch.cat([empty, *(show(result.to(empty)) for result in reached.results)])
    labels = targets.labels[: len(images)]
    return Dream(images, labels, reached.finished, reached.history, reached.checkpoint, knowledge.start)
