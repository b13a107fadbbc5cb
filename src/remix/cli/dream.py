"""`remix dream`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from remix.cli.parser import read_names, read_numbers, read_options, split_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from remix.deploy.dream_files import DreamFiles, DreamReport
    from remix.deploy.dream_plan import DreamPlan
    from remix.learning import Model

__all__ = ["dream", "show_dream"]


def dream(
    model: str | None = None,
    *,
    out: str,
    classes: str | None = None,
    count: int = 8,
    strategy: Literal["layerwise", "pixels", "pyramid", "generator"] | None = None,
    prior: Literal["laplace", "laplace-dct", "laplace-paper", "diagonal", "dense", "none"] | None = None,
    form: Literal["typical", "nll", "kl", "frobenius"] = "typical",
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
            kl - the whole batch distributed as real ones; frobenius - its covariance near that of real ones.
        prior_weight: Weight of the prior in the objective. By default 0.5 layerwise, 1 pixels and generator, 5 pyramid.
        steps: Steps of the longest phase; the others keep their proportion. More take longer, and images become
            clearer. By default 160 layerwise, 500 pixels, 80 pyramid, 1000 generator.
        batch: Most images optimised together.
        micro_batch: Most images in memory at once, if memory is short; slower.
        seed: Number from which images begin; the same seed and options give the same images.
        weights: Instead of a model: safetensors file with the weights of a network and its head.
        backbone: With --weights: which network they are of (see: remix backbones); or hf:PATH, a network of the
            transformers library with its own weights.
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
    network = {
        "backbone": backbone, "names": names, "size": size, "options": options, "mean": mean, "std": std,
    }  # fmt: skip
    if weights is None and not (backbone or "").startswith("hf:"):
        for option, value in network.items():
            if value is not None:
                raise ValueError(f"--{option} goes with --weights; a model file knows it already")
    files = DreamFiles.at(out)
    if overwrite and resume:
        raise ValueError("--resume goes on with a run, --overwrite starts it again: give one of them")
    files.prepare(overwrite, resume)
    opened = _opened(model, weights, statistics, network)
    plan = make_plan(opened.to(as_device(device)), wanted)
    console = Console()
    if model is None and statistics is None:
        say(
            console,
            "note: weights alone: only the statistics of BatchNorm layers are known. "
            "`remix measure` adds those that the strategy layerwise and the priors laplace and dense need.",
        )
    if not show_dream(plan, files, console, resume):
        sys.exit(130)


def _opened(model: str | None, weights: str | None, statistics: str | None, network: dict[str, Any]) -> Model:
    """A model file, or weights with what they do not say about themselves and perhaps a file of statistics."""
    from remix.deploy.adoption import model_of_weights
    from remix.learning import load_model
    from remix.statistics import Memory

    bare_backbone = network["backbone"] or ""
    if model is not None and (weights is not None or bare_backbone):
        raise ValueError(f"give either the model {model} or a network ({weights or bare_backbone}), not both")
    if model is not None:
        if statistics is not None:
            raise ValueError("--statistics goes with --weights; a model file has its own")
        return load_model(model)
    if weights is None and not bare_backbone:
        raise ValueError("name a model file (remix measure makes one), or give --weights and --backbone")
    if network["backbone"] is None:
        raise ValueError("weights alone do not say what network they belong to: give --backbone (remix backbones)")
    mean, std = read_numbers("--mean", network["mean"]), read_numbers("--std", network["std"])
    options, names = read_options(network["options"]), read_names(network["names"])
    bare = model_of_weights(weights, network["backbone"], options, network["size"], mean, std, names)
    if statistics is None:
        if not bare.classifier.backbone.has_batchnorm:
            raise ValueError(
                f"{network['backbone']} has no BatchNorm layers, so its weights alone do not say what its activations "
                f"are like: measure it first (remix measure IMAGES --backbone {network['backbone']} --out m.remix)"
            )
        return bare
    memory = Memory.load(statistics)
    classes = bare.classes
    if memory.classes and network["names"] is None and len(memory.classes) == len(classes):
        classes = tuple(record.name for record in memory.classes)
    return replace(bare, classes=classes, memory=memory)


def show_dream(plan: DreamPlan, files: DreamFiles, console: Console, resume: bool) -> bool:
    """Run a plan, and say what is done and what came of it; returns whether it came to its end."""
    from remix.deploy.dream_files import run_dream
    from remix.support.display import Display, duration, say
    from remix.support.machine import resuming_command_line

    for note in plan.notes:
        say(console, f"note: {note}")
    say(console, f"{len(plan.labels)} images of {', '.join(plan.record['classes'])}")
    say(console, plan.title())
    if not resume:
        say(console, f"this takes about {duration(plan.expected_seconds())} here (--steps for more steps, or fewer)")
    with Display(console) as display:

        def progress(place: str, done: float, terms: Mapping[str, float]) -> None:
            display.show(place, done, terms, last=done >= 1)

        report = run_dream(plan, files, resume, progress, display.say)
    for line in _sentences(report):
        say(console, line)
    if not report.finished:
        say(console, f"to go on: {resuming_command_line()}")
    return report.finished


def _sentences(report: DreamReport) -> list[str]:
    lines = []
    width = max(len(result.name) for result in report.classes)
    usable = any(result.images for result in report.classes)
    if usable:
        lines.append("what the network itself reads in them:")
        for result in report.classes:
            lines.append(f"  {result.name:<{width}}  {result.right} of {result.images} as {result.name}")
    missing = [result.name for result in report.classes if result.images < result.asked]
    if report.finished and missing:
        lines.append(f"note: the generator made too few images of {', '.join(missing)}: give it more --steps")
    longest = max((len(path) for path in report.written), default=0)
    lines += [f"{path:<{longest}}  {what}" for path, what in report.written.items()]
    if not report.finished:
        saved = "what was found so far is saved" if usable else "no image is ready yet"
        lines.append(f"stopped in {report.stopped_at or 'the beginning'}; {saved}")
    return lines
