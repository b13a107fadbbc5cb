"""`remix reproduce`."""

from __future__ import annotations

from typing import Literal

__all__ = ["reproduce"]


def reproduce(
    target: str | None = None,
    *,
    data: str | None = None,
    weights: str | None = None,
    out: str | None = None,
    scale: Literal["mini", "paper"] = "mini",
    resume: bool = False,
    vit: str | None = None,
    vit_images: str | None = None,
    memory: float | None = None,
) -> None:
    """Make the numbers of the paper again. Without a target: the list of them.

    Results are written as they come: CSV, JSON, Markdown and figures. After an interruption the same command with
    --resume goes on.

    Args:
        target: What to make again, such as likelihood or memory.
        data: Folder of photographs with train/ and val/, or one that has imagenette/ in it.
        weights: Safetensors file of a ResNet-34 with its head.
        out: Folder of the results; reproduce/TARGET by default.
        scale: mini - what a laptop does within an hour or so; paper - the paper's sizes.
        resume: Go on with the results in that folder.
        vit: For likelihood, also a vision transformer: its folder, as the transformers library saves it.
        vit_images: Its images: a data set in --data by name (cifar100), or a folder; by default the photographs.
        memory: GiB that features may take while they are fitted (default 4); beyond that they are read in passes.

    Examples:
        remix reproduce
        remix reproduce likelihood --data photos --weights resnet34.safetensors --out likelihood
        remix reproduce likelihood --data DIR --weights resnet34.safetensors --vit vit/ --vit-images cifar100
        remix reproduce memory
    """
    from pathlib import Path

    from rich.console import Console

    from remix.experiments.reproduce import TARGETS, Reproduction, reproduce_target

    console = Console()
    if target is None:
        for name, about in TARGETS.items():
            console.print(f"[bold]{name:<12}[/bold] {about}", highlight=False)
        return
    folder = Path(out or f"reproduce/{target}")
    wanted = Reproduction(folder, scale, resume, data, weights, vit, vit_images, memory)
    reproduce_target(target, wanted, console)
