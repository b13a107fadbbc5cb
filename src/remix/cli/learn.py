"""`remix learn`."""

from __future__ import annotations

import sys
from typing import Literal

__all__ = ["learn"]


def learn(
    source: str,
    images: str | None = None,
    *,
    out: str,
    backbone: str | None = None,
    weights: str | None = None,
    extend: bool = False,
    check: str | None = None,
    name: str | None = None,
    method: Literal["remix", "pmi", "lwf", "finetune"] | None = None,
    freeze: str | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    samples: int | None = None,
    size: int | None = None,
    batch: int | None = None,
    views: int | None = None,
    holdout: float | None = None,
    patience: int | None = None,
    seed: int | None = None,
    no_flip: bool = False,
    mean: str | None = None,
    std: str | None = None,
    options: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> None:
    """Teach a classifier the classes in a folder of photographs, without the photographs of the classes it knows.

    With one folder, the first classes: remix learn IMAGES/ --out model.remix. With a model and a folder, more classes:
    remix learn model.remix NEW_IMAGES/ --out model2.remix. The model is never changed; the new one is written whole or
    not at all. At the end a table tells how well the new classes (on a part of the images that was held out) and, with
    --check, the old ones are told apart.

    What is not given is chosen by the data. With --weights and up to 5,000 images all but the last block of the network
    stays frozen; without weights everything learns. Training stops when the held-out part gets no better.

    Args:
        source: The folder of the first images, one sub-folder per class; or a model file.
        images: The folder of new images, where source is a model.
        out: The model file to write, usually NAME.remix.
        backbone: The network to begin with (see: remix backbones); resnet32 by default.
        weights: Safetensors file with weights to begin with, such as of a network trained on ImageNet.
        extend: Add images to classes that the model knows already; without it a known class is an error.
        check: Folder of labelled images to test on, before and after; nothing is learned from it.
        name: Of this step, for remix inspect.
        method: remix; others to compare with. By default that of the model.
        freeze: Blocks that never change: a number, the name of the first block that learns, last-stage or none.
        epochs: Most passes over the images.
        lr: Learning rate.
        samples: Dreams per old class.
        size: Side in pixels to which images are brought.
        batch: Images at a time.
        views: Augmented versions of every image that go through frozen blocks; 1 for none.
        holdout: Fraction of the images to hold out, 0.2 by default; 0 for none.
        patience: Epochs without improvement after which training stops.
        seed: Of everything random; 0 by default.
        no_flip: Never mirror images left to right, as for letters; grey images are not mirrored anyway.
        mean: Of each channel, as the weights want it; by default that of ImageNet for colour, 0 for grey.
        std: The same; 1 for grey by default.
        options: Of the backbone, such as width=8.
        device: auto, cpu, cuda or mps.
        overwrite: Replace the file --out if it exists.

    Examples:
        remix learn photos/first --backbone resnet34 --weights resnet34.safetensors --out model.remix
        remix learn model.remix photos/more --out model2.remix
        remix learn model2.remix photos/again --extend --check photos/test --out model3.remix
        remix learn digits/first --backbone convnet8 --out digits.remix
    """
    from remix.deploy.learning_command import LearnOptions, learn_command

    typed = LearnOptions(
        source, images, out, backbone, weights, options, mean, std, method, name, extend, check, device, overwrite
    )
    settings = {
        "freeze": freeze,
        "epochs": epochs,
        "lr": lr,
        "samples": samples,
        "size": size,
        "batch": batch,
        "views": views,
        "holdout": holdout,
        "patience": patience,
        "seed": seed,
        "flip": False if no_flip else None,
    }
    status = learn_command(typed, settings)
    if status:
        sys.exit(status)
