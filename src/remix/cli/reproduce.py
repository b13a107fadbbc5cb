"""`remix reproduce`."""

from __future__ import annotations

import sys
from typing import Literal

__all__ = ["reproduce"]


def reproduce(
    target: str | None = None,
    *,
    data: str | None = None,
    out: str | None = None,
    scale: Literal["mini", "paper"] = "mini",
    resume: bool = False,
    seeds: str | None = None,
    jobs: int | None = None,
    runs: str | None = None,
    finished: bool = False,
    dry_run: bool = False,
    weights: str | None = None,
    vit: str | None = None,
    vit_images: str | None = None,
    memory: float | None = None,
) -> None:
    """Make the tables and figures of the paper again. Without a target: the list of them.

    A plan with an estimate of the time comes first. Results are CSV, Markdown and figures, and a page of the runs.
    After an interruption the same command with --resume goes on. Targets share runs: what one has computed, or remix
    run or remix sweep has left in the folder --runs, is not computed again.

    Args:
        target: What to make again, such as table1 or memory.
        data: The folder that data sets are kept in. For likelihood and samples: photographs with train/ and val/, or a
            folder that has imagenette/ in it.
        out: Folder of the results; reproduce/TARGET by default.
        scale: mini - small networks, for two cores; paper - the paper's protocol, for a GPU.
        resume: Go on with the results in that folder.
        seeds: Of the runs, such as 0-2 (mini) or 1-5 (paper), which are the defaults.
        jobs: Runs at a time; the processors are shared between them.
        runs: Folder of the runs that targets share; runs/ beside the folder of the results by default.
        finished: Make the results of the runs that are finished, run nothing.
        dry_run: Only show the plan.
        weights: For likelihood and samples: safetensors file of a ResNet-34 with its head.
        vit: For likelihood, also a vision transformer: its folder, as the transformers library saves it.
        vit_images: Its images: a data set in --data by name (cifar100), or a folder; by default the photographs.
        memory: For likelihood: GiB that features may take while they are fitted (default 4); beyond that they are read
            in passes.

    Examples:
        remix reproduce
        remix reproduce table1 --data DIR --dry-run
        remix reproduce table1 --data DIR --jobs 2
        remix reproduce retention --data DIR --jobs 2 --resume
        remix reproduce table1 --scale paper --data DIR --seeds 1-5
        remix reproduce likelihood --data photos --weights resnet34.safetensors --out likelihood
        remix reproduce likelihood --data DIR --weights resnet34.safetensors --vit vit/ --vit-images cifar100
        remix reproduce memory
    """
    from pathlib import Path

    from rich.console import Console

    from remix.reproduce import TARGETS, Reproduction, reproduce_target

    console = Console()
    if target is None:
        for name, about in TARGETS.items():
            console.print(f"[bold]{name:<12}[/bold] {about}", highlight=False)
        return
    wanted = Reproduction(
        Path(out or f"reproduce/{target}"), scale, resume, data, runs, seeds, jobs, finished or None, dry_run or None,
        weights, vit, vit_images, memory,
    )  # fmt: skip
    try:
        complete = reproduce_target(target, wanted, console)
    except KeyboardInterrupt:
        console.print("interrupted; what was done is saved, and the same command with --resume goes on", style="red")
        sys.exit(130)
    if not complete:
        sys.exit(1)
