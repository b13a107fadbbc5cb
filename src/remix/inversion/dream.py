"""Running a strategy on a batch of targets, in chunks, on a frozen network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remix.inversion.checkpoint import Checkpoint
from remix.inversion.observed import frozen
from remix.inversion.phases import Phase, Progress, run_phases
from remix.inversion.targets import Targets
from remix.laplace.normal import standard_normal

__all__ = ["Dream", "chunks", "dream_in_chunks", "noise"]

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Dream:
    """Pseudo-samples.

    Attributes:
        images: (n, C, H, W), as the network receives them; fewer than asked for, perhaps none, after an interruption.
        labels: (n,).
        finished: whether the run came to its end.
        history: by phase, then by term, the values in every step.
        checkpoint: what to give to ``resume`` to go on, if it is not finished.

    """

    images: Tensor
    labels: Tensor
    finished: bool
    history: dict[str, dict[str, list[float]]]
    checkpoint: Checkpoint | None


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
    networks: Sequence[nn.Module],
    targets: Targets,
    batch: int,
    phases_of: Callable[[Targets, str], list[Phase]],
    show: Callable[[Tensor], Tensor],
    empty: Tensor,
    generator: torch.Generator,
    progress: OnProgress | None,
    resume: Checkpoint | None,
) -> Dream:
    """Run a strategy's phases for every chunk of the targets.

    Args:
        networks: to be frozen meanwhile.
        targets: of all samples.
        batch: most samples in a chunk.
        phases_of: from the targets of a chunk, and a prefix for names, to its phases.
        show: from what the phases find to what the network receives.
        empty: the images to return if there are none yet, (0, C, H, W).
        generator: source of everything random.
        progress: called after every step.
        resume: where to go on.

    """
    parts = chunks(len(targets), batch)
    phases = []
    for i, part in enumerate(parts):
        phases += phases_of(targets[part], f"chunk {i + 1}/{len(parts)}: " if len(parts) > 1 else "")
    with frozen(*networks):
        outcome = run_phases(phases, generator, progress=progress, resume=resume)
        images = [empty, *(show(result.to(empty)) for result in outcome.results)]
    found = torch.cat(images)
    return Dream(found, targets.labels[: len(found)], outcome.finished, outcome.history, outcome.checkpoint)
