"""`remix measure`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remix.cli.parser import read_names, read_numbers, read_options, split_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from remix.learning import Model

__all__ = ["measure", "show_measuring"]


def measure(
    images: str,
    *,
    backbone: str,
    weights: str | None = None,
    out: str,
    names: str | None = None,
    classes: str | None = None,
    size: int | None = None,
    kinds: str = "laplace",
    views: str = "channels",
    maps: str | None = None,
    transform: Literal["auto", "dct", "none"] = "auto",
    mean: str | None = None,
    std: str | None = None,
    options: str | None = None,
    batch: int = 32,
    device: str = "auto",
    overwrite: bool = False,
) -> None:
    """Measure the statistics of a network on a folder of images, and save both as a model that can dream.

    What is kept: for every BatchNorm layer the mean and covariance of its input, for every block those of its input,
    for every class a Gaussian of the network's features. No image is kept.

    Args:
        images: Folder with one sub-folder of images per class.
        backbone: Which network it is (see: remix backbones); or hf:PATH, one of the transformers library.
        weights: Safetensors file with the network's weights, its head (fc, linear or head) included; not with hf:PATH.
        out: The model file to write, usually NAME.remix.
        names: Classes of the head's outputs in their order: a,b,c or a file with one per line. Without it the order
            is found from what the network says about the images.
        classes: Folders to look at, separated by commas; all by default. One alone gives the statistics of one class.
        size: Side in pixels to which images are brought; the backbone's usual size by default.
        kinds: Covariances to keep, separated by commas: laplace, laplace-paper (fitted as published), dense.
        views: What covariances are of, separated by commas: channels, map (every pixel of every channel; large); of
            transformers token-channels, patches (large).
        maps: Of views but channels, where: stages (the last block of every size of maps, of a transformer of every
            quarter) or names of blocks; BatchNorm inputs by default.
        transform: What happens to maps first: dct - a cosine transform; none; auto - dct for maps of 8 x 8 pixels and
            more.
        mean: Mean of each channel that the network was trained with, within 0..1 and separated by commas; by default
            that of ImageNet for colour, 0 for grey.
        std: Standard deviation of each channel, as --mean; 1 for grey by default.
        options: Options of the backbone, such as width=8; several are separated by commas.
        batch: Images that go through the network at a time; fewer take less memory.
        device: Where to compute: auto (a GPU if there is one), cpu, cuda, mps, ...
        overwrite: Replace the model file if it exists.

    Examples:
        remix measure photos/train --weights resnet34.safetensors --backbone resnet34 --out photos.remix
        remix measure photos/train --weights w.safetensors --backbone resnet34 --size 112 --out m.remix
        remix measure photos --weights w.safetensors --backbone resnet34 --views map --maps stages --out maps.remix
    """
    from rich.console import Console

    from remix.deploy.adoption import model_of_weights
    from remix.deploy.measuring import KINDS, check_request
    from remix.learning.team import as_device

    path = Path(out)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is there already: --overwrite replaces it, or choose another --out")
    if weights is None and not backbone.startswith("hf:"):
        raise ValueError(f"give the weights of {backbone} with --weights")
    if batch < 1:
        raise ValueError(f"--batch must be at least 1, got {batch}")
    wanted, looked_at = split_words(kinds), split_words(views)
    places = None if maps is None else split_words(maps)
    folders = split_words(classes) if classes else None
    check_request(wanted, looked_at, places)
    if transform not in ("auto", "dct", "none"):
        raise ValueError(f"--transform must be auto, dct or none, got {transform!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"the folder {path.parent} cannot be written to")
    told = read_names(names)
    channels = read_numbers("--mean", mean), read_numbers("--std", std)
    bare = model_of_weights(weights, backbone, read_options(options), size, *channels, told)
    show_measuring(
        bare.to(as_device(device)),
        images,
        path,
        Console(),
        told,
        classes=folders,
        kinds=[kind for kind in KINDS if kind in wanted],
        views=looked_at,
        maps=places,
        transform=None if transform == "none" else transform,
        batch=batch,
    )


def show_measuring(
    bare: Model,
    images: str | Path,
    out: Path,
    console: Console,
    names: Sequence[str] | None = None,
    *,
    classes: Sequence[str] | None = None,
    views: Sequence[str],
    maps: Sequence[str] | None,
    rows: int | None = None,
    **options: Any,
) -> None:
    """Measure a model on a folder of images, save it with its statistics, and say what is done and what came of it.

    Args:
        bare: on the device where it is measured.
        images: the folder.
        out: the model file, which is replaced.
        console: where to.
        classes: as of `read_folder`.
        names, views, maps, rows, options: as of `measure_model`.

    """
    from remix.data.errors import left_out
    from remix.deploy.measuring import map_bytes, measure_model, order_of_names, read_folder
    from remix.learning import save_model
    from remix.support.display import Display, duration, say

    read = read_folder(images, bare.preprocessing, classes)
    data = read.train
    order_of_names(data.classes, names, bare.classifier.head.num_classes)
    say(console, f"{len(data)} images of {len(data.classes)} classes at {bare.preprocessing.size} pixels")
    if {"map", "patches"} & {*views}:
        most = map_bytes(bare, maps, rows) / 2**30
        say(console, f"note: maps take up to {most:.1f} GiB of memory while they are measured")
    began = time.monotonic()
    with Display(console) as display:

        def progress(seen: int, count: int) -> None:
            what = "fitting covariances" if seen == count else f"{seen} of {count} images"
            display.show(what, seen / count, {}, last=seen == count)

        measured = measure_model(bare, data, names, views=views, maps=maps, rows=rows, progress=progress, **options)
    save_model(out, measured.model)
    memory = measured.model.memory
    assert memory is not None
    for line in (
        *(f"left out: {line}" for line in left_out(read.skipped)),
        *(f"note: {note}" for note in measured.order.notes),
        *(f"WARNING: {warning}" for warning in measured.order.warnings),
        f"{measured.order.right} of {measured.images} images are read right by the network",
        f"{out}  {out.stat().st_size / 2**20:.1f} MiB: the network and statistics of {len(memory.layers)} layers",
        f"took {duration(time.monotonic() - began)}; next: remix dream {out} --out grid.png",
    ):
        say(console, line)
