"""`remix dream`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from remix.cli.parser import split_words

if TYPE_CHECKING:
    from rich.console import Console

    from remix.deploy.dream_files import DreamFiles
    from remix.deploy.dream_plan import DreamPlan

__all__ = ["dream", "show_dream"]


def dream(
    model: str | None = None,
    *,
    out: str,
    classes: str | None = None,
    count: int = 8,
    strategy: Literal["layerwise", "pixels", "pyramid", "generator"] | None = None,
    prior: Literal["laplace", "laplace-dct", "diagonal", "dense", "none"] | None = None,
    form: Literal["typical", "nll", "kl"] = "typical",
    prior_weight: float | None = None,
    steps: int | None = None,
    batch: int | None = None,
    micro_batch: int | None = None,
    seed: int = 0,
    weights: str | None = None,
    backbone: str | None = None,
    statistics: str | None = None,
    names: str | None = None,
    size: int | None = None,
    mean: str | None = None,
    std: str | None = None,
    options: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = False,
) -> None:
    """Dream images of a model's classes, without any data.

    Writes a labelled picture of them, the images as tensors (NAME.safetensors), and a plot of the objective's terms
    (NAME-terms.png). Ctrl-C stops after the current step and saves what was found; --resume goes on to the same bits.

    Args:
        model: Model file, as remix learn, remix run or remix measure writes it. Or give --weights and --backbone.
        out: The picture to write, NAME.png; the other files are named from it.
        classes: Classes to dream of, names separated by commas; all by default, of more than ten the first ten.
        count: Images per class.
        strategy: How images are found: layerwise - block by block from the features of the classes, then the whole
            network; pixels - from noise; pyramid - from small to large images; generator - a network that makes images.
            By default layerwise; where there are no statistics of blocks and classes, pixels, and pyramid from 64
            pixels up.
        prior: Covariance of the activations that images are held to. By default laplace, or diagonal without it.
        form: How images are held to --prior: typical - as far from the mean as real ones; nll - as likely as can be;
            kl - the whole batch distributed as real ones.
        prior_weight: Weight of the prior in the objective. By default 0.5 layerwise, 1 pixels and generator, 5 pyramid.
        steps: Steps of the longest phase; the others keep their proportion. By default 160 layerwise, 500 pixels and
            pyramid, 1000 generator.
        batch: Most images optimised together.
        micro_batch: Most images in memory at once, if memory is short; slower.
        seed: Number from which images begin; the same seed and options give the same images.
        weights: Instead of a model: safetensors file with the weights of a network and its head.
        backbone: With --weights: which network they are of (see: remix backbones).
        statistics: With --weights: a file of remix.statistics.Memory, the prior of the images.
        names: With --weights: classes of the head's outputs in their order: a,b,c or a file with one per line.
        size: With --weights: side of the images in pixels.
        mean: With --weights: mean of each channel in training, within 0..1 and separated by commas; by default that of
            ImageNet for colour, 0 for grey.
        std: With --weights: standard deviation of each channel, as --mean; 1 for grey by default.
        options: With --weights: options of the backbone, such as width=8; several are separated by commas.
        device: Where to compute: auto (a GPU if there is one), cpu, cuda, mps, ...
        overwrite: Replace files that exist.
        resume: Go on with an interrupted run of the same options.

    Examples:
        remix dream photos.remix --out grid.png
        remix dream photos.remix --classes apple,bear --count 16 --strategy pyramid --steps 300 --out grid.png
        remix dream photos.remix --prior dense --form nll --prior-weight 1 --out dense.png
        remix dream --weights resnet34.safetensors --backbone resnet34 --size 112 --classes 0,3 --out bare.png
    """
    from rich.console import Console

    from remix.deploy.dream_files import DreamFiles
    from remix.deploy.dream_options import DreamOptions
    from remix.deploy.dream_plan import make_plan
    from remix.deploy.sources import NetworkFile, open_model
    from remix.learning.team import as_device
    from remix.support.display import say

    wanted = DreamOptions(
        None if classes is None else tuple(split_words(classes)),
        count,
        strategy,
        prior,
        form,
        prior_weight,
        steps,
        batch,
        micro_batch,
        seed,
    )
    network = None if weights is None else NetworkFile(weights, backbone, options, size, mean, std, names)
    if weights is None:
        for option, value in {
            "backbone": backbone, "names": names, "size": size, "options": options, "mean": mean, "std": std,
        }.items():  # fmt: skip
            if value is not None:
                raise ValueError(f"--{option} goes with --weights; a model file knows it already")
    files = DreamFiles.at(out)
    if overwrite and resume:
        raise ValueError("--resume goes on with a run, --overwrite starts it again: give one of them")
    files.prepare(overwrite, resume)
    opened = open_model(model, network, statistics)
    plan = make_plan(opened.model.to(as_device(device)), wanted)
    console = Console()
    for note in opened.notes:
        say(console, f"note: {note}")
    if not show_dream(plan, files, console, resume):
        sys.exit(130)


def show_dream(plan: DreamPlan, files: DreamFiles, console: Console, resume: bool) -> bool:
    """Run a plan, and say what is done and what came of it; returns whether it came to its end."""
    from remix.deploy.dreaming import announce, run_dream
    from remix.support.display import say
    from remix.support.machine import resuming_command_line

    for line in announce(plan):
        say(console, line)
    report = run_dream(plan, files, console, resume)
    for line in report.sentences():
        say(console, line)
    if not report.finished:
        say(console, f"to go on: {resuming_command_line()}")
    return report.finished
