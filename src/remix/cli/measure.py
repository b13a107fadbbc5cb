"""`remix measure`."""

from __future__ import annotations

import os
from typing import Literal

from remix.cli.parser import split_words

__all__ = ["measure"]


def measure(
    images: str,
    *,
    weights: str,
    backbone: str,
    out: str,
    names: str | None = None,
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
        weights: Safetensors file with the network's weights, its head (fc, linear or head) included.
        backbone: Which network it is (see: remix backbones).
        out: The model file to write, usually NAME.remix.
        names: Classes of the head's outputs in their order: a,b,c or a file with one per line. Without it the order
            is found from what the network says about the images.
        size: Side in pixels to which images are brought; the backbone's usual size by default.
        kinds: Covariances to keep: laplace, dense or laplace,dense.
        views: What covariances are of: channels, map (every pixel of every channel; large) or channels,map.
        maps: With --views map, whose maps: stages (the last block of every size of maps) or names of blocks; BatchNorm
            inputs by default.
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
    from pathlib import Path

    from rich.console import Console

    from remix.deploy.measuring import KINDS, check_request, measure_folder
    from remix.deploy.sources import NetworkFile
    from remix.support.display import Display

    path = Path(out)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is there already: --overwrite replaces it, or choose another --out")
    if batch < 1:
        raise ValueError(f"--batch must be at least 1, got {batch}")
    wanted, looked_at = split_words(kinds), split_words(views)
    places = None if maps is None else split_words(maps)
    check_request(wanted, looked_at, places)
    if transform not in ("auto", "dct", "none"):
        raise ValueError(f"--transform must be auto, dct or none, got {transform!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"the folder {path.parent} cannot be written to")
    measure_folder(
        images,
        NetworkFile(weights, backbone, options, size, mean, std, names),
        path,
        Display(Console()),
        kinds=[kind for kind in KINDS if kind in wanted],
        views=looked_at,
        maps=places,
        transform=None if transform == "none" else transform,
        batch=batch,
        device=device,
    )
