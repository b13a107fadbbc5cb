"""`remix measure`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from remix.data.errors import left_out
from remix.deploy.head_order import order_of_names
from remix.deploy.measuring import Measured, check_request, map_bytes, measure_model, read_images
from remix.deploy.sources import NetworkFile, read_names
from remix.learning import save_model
from remix.learning.devices import as_device, on_device
from remix.statistics import Kind
from remix.support.display import Display, duration, say

__all__ = ["measure_command"]


def measure_command(
    images: str,
    network: NetworkFile,
    out: str,
    *,
    kinds: Sequence[str],
    views: Sequence[str],
    maps: Sequence[str] | None = None,
    transform: str = "auto",
    batch: int,
    device: str = "auto",
    overwrite: bool = False,
    console: Console | None = None,
) -> Measured:
    """Measure, save the model, and tell a person about it.

    Raises:
        ValueError: for whatever cannot be done, before any work.
        OSError: if a file cannot be read or written.

    """
    console = console or Console()
    path = Path(out)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is there already: --overwrite replaces it, or choose another --out")
    if batch < 1:
        raise ValueError(f"--batch must be at least 1, got {batch}")
    check_request(kinds, views, maps)
    if transform not in ("auto", "dct", "none"):
        raise ValueError(f"--transform must be auto, dct or none, got {transform!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"the folder {path.parent} cannot be written to")
    names = read_names(network.names) if network.names else None
    bare = on_device(network.load(), as_device(device))
    data, skipped = read_images(images, bare.preprocessing)
    order_of_names(data.classes, names, bare.classifier.head.num_classes)
    say(console, f"{len(data)} images of {len(data.classes)} classes at {bare.preprocessing.size} pixels")
    if "map" in views:
        most = map_bytes(bare, maps) / 2**30
        say(console, f"note: maps take up to {most:.1f} GiB of memory while they are measured")
    began = time.monotonic()
    with Display(console) as display:

        def progress(seen: int, count: int) -> None:
            what = "fitting covariances" if seen == count else f"{seen} of {count} images"
            display.show(what, seen / count, {}, last=seen == count)

        measured = measure_model(
            bare,
            data,
            names,
            kinds=_kinds(kinds),
            views=views,
            maps=maps,
            transform=None if transform == "none" else "dct" if transform == "dct" else "auto",
            batch=batch,
            progress=progress,
        )
    save_model(path, measured.model)
    for line in left_out(skipped):
        say(console, f"left out: {line}")
    for note in measured.order.notes:
        say(console, f"note: {note}")
    for warning in measured.order.warnings:
        say(console, f"WARNING: {warning}")
    say(console, f"{measured.order.right} of {measured.images} images are read right by the network")
    memory = measured.model.memory
    assert memory is not None
    size = path.stat().st_size / 2**20
    say(console, f"{path}  {size:.1f} MiB: the network and statistics of {len(memory.layers)} layers")
    say(console, f"took {duration(time.monotonic() - began)}; next: remix dream {path} --out grid.png")
    return measured


def _kinds(kinds: Sequence[str]) -> list[Kind]:
    return [kind for kind in ("laplace", "dense") if kind in kinds]
