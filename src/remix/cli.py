"""The `remix` command. Each sub-command is a plain function with typed arguments; jsonargparse makes the options.

Modules that need torch are imported inside the functions, so that `remix --help` answers at once.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import docstring_parser
from jsonargparse import ArgumentParser, DefaultHelpFormatter

from remix._version import __version__

__all__ = ["COMMANDS", "backbones", "data", "datasets", "doctor", "dream", "main", "measure"]


def doctor(json: bool = False) -> None:
    """Versions, the Laplace kernels in use and why, threads, memory, devices, data folder.

    Args:
        json: Print one JSON object instead of a table.
    """
    from dataclasses import asdict
    from json import dumps

    from remix.doctor import examine, show

    found = examine()
    if json:
        print(dumps(asdict(found), indent=2))
    else:
        show(found)
    if found.broken:
        sys.exit(1)


def datasets() -> None:
    """The data sets that REMIX reads by name, one line each."""
    from rich.console import Console

    from remix.data.show import show_datasets

    show_datasets(Console())


def data(action: Literal["prepare"], name: str, data: str | None = None) -> None:
    """Find a data set, check it, count its images per class; download it if it is not there and can be fetched.

    Args:
        action: What to do: prepare.
        name: Of the data set (see: remix datasets), or a folder with one sub-folder of images per class.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.

    Examples:
        remix data prepare cifar100 --data ~/data
        remix data prepare photos/
    """
    from rich.console import Console

    from remix.data import DataError
    from remix.data.prepare import prepare
    from remix.data.show import show_splits

    console = Console()
    try:
        show_splits(prepare(name, data, console), console)
    except DataError as error:
        print(f"remix data {action}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"remix data {action}: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


def backbones(pattern: str = "*") -> None:
    """The networks that REMIX knows by name, one line each.

    Args:
        pattern: Only names like this, such as "resnet*".
    """
    from remix.experiments.backbone_list import backbone_lines

    for line in backbone_lines(pattern):
        print(line)


def measure(
    images: str,
    weights: str,
    backbone: str,
    out: str,
    names: str | None = None,
    size: int | None = None,
    kinds: str = "laplace",
    views: str = "channels",
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
        views: Of what: channels, map (every pixel of every channel; large) or channels,map.
        mean: Of each channel, as in training; by default that of ImageNet for colour, 0 for grey.
        std: The same; 1 for grey by default.
        options: Of the backbone, such as width=8.
        batch: Images at a time.
        device: auto, cpu, cuda, mps, ...
        overwrite: Replace the model file if it exists.

    Examples:
        remix measure photos/train --weights resnet34.safetensors --backbone resnet34 --out photos.remix
        remix measure photos/train --weights w.safetensors --backbone resnet34 --size 112 --out m.remix
    """
    from remix.experiments.measure_command import measure_command
    from remix.experiments.sources import NetworkFile

    network = NetworkFile(weights, backbone, options, size, mean, std, names)
    measure_command(
        images,
        network,
        out,
        kinds=_words(kinds),
        views=_words(views),
        batch=batch,
        device=device,
        overwrite=overwrite,
    )


def dream(
    out: str,
    model: str | None = None,
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
        out: The picture to write, NAME.png; the other files are named from it.
        model: Model file, as remix measure makes it. Or give --weights and --backbone.
        classes: Names separated by commas; all by default, of more than ten the first ten.
        count: Images per class.
        strategy: layerwise - block by block from the features of the classes, then the whole network; pixels - from
            noise; pyramid - from small to large images; generator - a network that makes images. By default layerwise,
            or pixels where the model has no statistics of blocks and classes.
        prior: Covariance of the activations that images are held to. By default laplace, or diagonal without it.
        form: How they are held to it: typical - as far from the mean as real ones; nll - as likely as can be; kl -
            the whole batch distributed as real ones.
        prior_weight: Of that in the objective. By default 0.5 layerwise, 1 pixels and generator, 5 pyramid.
        steps: Of the longest phase; the others keep their proportion. By default 160 layerwise, 500 pixels and
            pyramid, 1000 generator.
        batch: Most images optimised together.
        micro_batch: Most images in memory at once, if memory is short; slower.
        seed: The same seed and options give the same images.
        weights: Instead of a model: safetensors file with weights and head.
        backbone: Of the weights (see: remix backbones).
        statistics: Of the weights: a file of remix.statistics.Memory.
        names: Of the weights: classes of the head's outputs in their order: a,b,c or a file with one per line.
        size: Of the weights: side of the images in pixels.
        mean: Of the weights: of each channel in training; by default that of ImageNet for colour, 0 for grey.
        std: Of the weights: the same; 1 for grey by default.
        options: Of the weights: options of the backbone, such as width=8.
        device: auto, cpu, cuda, mps, ...
        overwrite: Replace files that exist.
        resume: Go on with an interrupted run of the same options.

    Examples:
        remix dream photos.remix --out grid.png
        remix dream photos.remix --classes apple,bear --count 16 --strategy pyramid --steps 300 --out grid.png
        remix dream photos.remix --prior dense --form nll --prior-weight 1 --out dense.png
        remix dream --weights resnet34.safetensors --backbone resnet34 --size 112 --classes 0,3 --out bare.png
    """
    from remix.experiments.dream_command import dream_command
    from remix.experiments.dream_options import DreamOptions
    from remix.experiments.sources import NetworkFile

    wanted = DreamOptions(
        None if classes is None else tuple(_words(classes)),
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
        for option, value in {"backbone": backbone, "names": names, "size": size, "options": options}.items():
            if value is not None:
                raise ValueError(f"--{option} goes with --weights; a model file knows it already")
    report = dream_command(model, network, statistics, wanted, out, device=device, overwrite=overwrite, resume=resume)
    if not report.finished:
        sys.exit(130)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


COMMANDS: dict[str, Callable[..., None]] = {
    "measure": measure,
    "dream": dream,
    "data": data,
    "datasets": datasets,
    "backbones": backbones,
    "doctor": doctor,
}

# Arguments that are typed without their name.
_POSITIONAL = {"action", "images", "model", "name", "pattern"}


class _Formatter(DefaultHelpFormatter):
    """Keeps paragraphs and the lines of examples apart, and says of an argument only what its note says."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n\n".join(super(_Formatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))

    def _get_help_string(self, action: Any) -> str:
        note = action.help or ""
        plain = isinstance(action.default, int | float | str) and not isinstance(action.default, bool)
        return f"{note} (default: {action.default})" if plain and "==SUPPRESS==" not in str(action.default) else note


def build_parser() -> ArgumentParser:
    """The parser of `remix`, one sub-command per entry of COMMANDS."""
    parser = ArgumentParser(
        prog="remix",
        description="Teach an image classifier new classes without the data of the old ones.",
        version=__version__,
        formatter_class=_Formatter,
    )
    commands = parser.add_subcommands(title="commands", metavar="command", description="remix COMMAND --help says more")
    for name, function in COMMANDS.items():
        about = docstring_parser.parse(function.__doc__ or "")
        commands.add_subcommand(name, _command_parser(function, about), help=about.short_description)
    return parser


def _command_parser(function: Callable[..., None], about: docstring_parser.Docstring) -> ArgumentParser:
    """Parameters without a name on the command line: those of _POSITIONAL. One that defaults to False is a switch."""
    examples = [line for example in about.examples for line in (example.description or "").splitlines()]
    command = ArgumentParser(
        description="\n\n".join(filter(None, [about.short_description, about.long_description])),
        epilog="examples:\n" + "\n".join(f"  {line.strip()}" for line in examples) if examples else None,
        formatter_class=_Formatter,
    )
    hints = get_type_hints(function)
    notes = {note.arg_name: note.description for note in about.params}
    for key, parameter in inspect.signature(function).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        settings: dict[str, Any] = (
            {"help": notes[key]} if required else {"help": notes[key], "default": parameter.default}
        )
        flag = f"--{key.replace('_', '-')}"
        if key in _POSITIONAL:
            command.add_argument(key, type=hints[key], nargs=None if required else "?", **settings)
        elif parameter.default is False:
            command.add_argument(flag, action="store_true", help=notes[key])
        else:
            choices = _choices(hints[key])
            if choices:  # only shown: the command itself refuses other words, in a sentence
                settings["metavar"] = "{" + ",".join(choices) + "}"
            command.add_argument(flag, type=str if choices else hints[key], required=required, **settings)
    return command


def _choices(hint: Any) -> tuple[str, ...]:
    """The words of a Literal, also of an optional one."""
    parts = [hint, *get_args(hint)]
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; ``args`` defaults to ``sys.argv``.

    What a person can set right ends with one sentence and status 2. With REMIX_TRACEBACK set, Python's whole report is
    shown instead.
    """
    given = list(sys.argv[1:] if args is None else args)
    chosen = build_parser().parse_args(given or ["--help"])
    try:
        COMMANDS[chosen.subcommand](**chosen[chosen.subcommand].as_dict())
    except (ValueError, OSError) as error:
        if os.environ.get("REMIX_TRACEBACK"):
            raise
        print(f"remix {chosen.subcommand}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"remix {chosen.subcommand}: interrupted, nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
