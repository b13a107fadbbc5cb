"""`remix reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remix.cli.dream import show_dream
from remix.cli.measure import show_measuring
from remix.reproduce import PAPER, TARGETS, Listener, Reproduction, reproduce_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from remix.deploy.dream_files import DreamFiles
    from remix.deploy.dream_plan import DreamPlan
    from remix.learning import Model

__all__ = ["Printer", "reproduce"]


def reproduce(
    target: str | None = None,
    *,
    data: str | None = None,
    out: str | None = None,
    scale: Literal["mini", "paper"] = "mini",
    resume: bool = False,
    seeds: str | None = None,
    preset: str | None = None,
    jobs: int | None = None,
    runs: str | None = None,
    rows: str | None = None,
    finished: bool = False,
    dry_run: bool = False,
    weights: str | None = None,
    classes: str | None = None,
    form: str | None = None,
    vit: str | None = None,
    vit_images: str | None = None,
    memory: float | None = None,
) -> None:
    """Make the tables and figures of the paper again. Without a target: the list of them.

    A plan with an estimate of the time comes first. Results are CSV, Markdown and figures, and a page of the runs.
    After an interruption the same command with --resume goes on. Targets share runs: what one has computed, or remix
    run or remix sweep has left in the folder --runs, is not computed again.

    Args:
        target: What to make again: table1, table2, efficiency, retention, lambda, convergence, figures, samples,
            likelihood or memory.
        data: The folder that data sets are kept in. For likelihood and samples: photographs with train/ and val/, or a
            folder that has imagenette/ in it.
        out: Folder of the results; reproduce/TARGET by default, with --preset reproduce/TARGET-PRESET.
        scale: mini - small networks, for two cores; paper - the paper's protocol, for a GPU.
        resume: Go on with the results in the folder --out.
        seeds: Seeds of the runs, such as 0-2 (the default of mini; for lambda 0) or 1-5 (that of paper).
        preset: For retention, lambda, efficiency and convergence: runs of another preset, such as tiny-mini,
            cub-vit-mini or cub200-clip-10 (the paper's).
        jobs: Runs at a time, 1 by default; the processors are shared between them.
        runs: Folder of the runs that targets share; runs/ beside the folder of the results by default.
        rows: CSV file of an earlier call, such as docs/reproduce/table1.csv: a row with the same preset, method and
            seed stands for a run that is not in --runs.
        finished: Make the results of the runs that are finished, run nothing.
        dry_run: Only show the plan.
        weights: For likelihood and samples: safetensors file of a ResNet-34 with its head; for samples with --vit it
            judges the images.
        classes: For likelihood and samples: names of the folders of photographs, separated by commas; by default at the
            scale paper those of the paper, n02113978 (dog), n04285008 (car), n01882714 (koala), n03457902 (greenhouse).
        form: For samples: how the prior enters, nll (the default and the paper's), typical or kl.
        vit: A vision transformer's folder, as the transformers library saves it: for likelihood also, for samples
            instead of the ResNet-34.
        vit_images: Images for --vit: a data set in --data by name (cifar100), or a folder; by default the photographs.
        memory: For likelihood: GiB that features may take while they are fitted (default 4); beyond that they are read
            in passes.

    Examples:
        remix reproduce
        remix reproduce table1 --data DIR --dry-run
        remix reproduce table1 --data DIR --jobs 2
        remix reproduce retention --data DIR --jobs 2 --resume
        remix reproduce retention --preset tiny-mini --data DIR --dry-run
        remix reproduce table1 --scale paper --data DIR --seeds 1-5
        remix reproduce likelihood --data photos --weights resnet34.safetensors --out likelihood
        remix reproduce likelihood --data DIR --weights resnet34.safetensors --vit vit/ --vit-images cifar100
        remix reproduce samples --data photos --weights resnet34.safetensors --classes church,parachute --dry-run
        remix reproduce table2 --data DIR --dry-run
        remix reproduce samples --data photos --vit vit/ --weights resnet34.safetensors --dry-run
        remix reproduce table1 --rows docs/reproduce/table1.csv --finished
        remix reproduce lambda --preset cifar100-mini --data DIR --dry-run
        remix reproduce convergence --jobs 2
        remix reproduce figures
        remix reproduce memory
    """
    from rich.console import Console

    from remix.support.display import say

    console = Console()
    if target is None:
        _list(console)
        return
    named = target if preset is None else f"{target}-{Path(preset).stem}"
    wanted = Reproduction(
        Path(out or f"reproduce/{named}"), scale, resume, data, runs, rows, seeds, preset, jobs, finished or None,
        dry_run or None, weights, classes, form, vit, vit_images, memory,
    )  # fmt: skip
    try:
        complete = reproduce_target(target, wanted, Printer(console))
    except KeyboardInterrupt:
        say(console, "interrupted; what was done is saved, and the same command with --resume goes on", style="red")
        sys.exit(130)
    if not complete:
        sys.exit(1)


def _list(console: Console) -> None:
    """The targets, and every table and figure of the paper with what makes it and what has to be brought."""
    from remix.cli.output import fitted_table

    look: dict[str, Any] = {"box": None, "pad_edge": False}
    rows = [[name, about] for name, about in TARGETS.items()]
    console.print(fitted_table(["", "makes"], rows, console.width, texts=("", "makes"), show_header=False, **look))
    console.print("\nWhat the paper has, at its scale (remix reproduce COMMAND); without --scale paper: on a laptop")
    heads, rows = ["", "shows", "command", "needs"], []
    for part in PAPER:
        brought = [*([part.needs] if part.needs else []), *(["a GPU"] if part.gpu else [])]
        rows.append([part.name, part.shows, part.command or "-", "; ".join(brought) or "nothing"])
    console.print(fitted_table(heads, rows, console.width, texts=heads, **look))


class Printer(Listener):
    """Prints what a target tells."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """A line, or a result of several."""
        from remix.support.display import say

        for line in text.split("\n"):
            say(self.console, line)

    def fail(self, sentence: str) -> None:
        """Something that did not go well; the rest goes on."""
        from remix.support.display import say

        say(self.console, sentence, style="red")

    def plan(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The runs that are needed, as a table."""
        from remix.cli.output import fitted_table

        self.console.print(fitted_table(heads, rows, self.console.width, texts=heads[:3]))

    def measure(self, bare: Model, images: Path, out: Path, **options: Any) -> None:
        """Measure a model on a folder of images, and tell of it."""
        show_measuring(bare, images, out, self.console, **options)

    def dream(self, plan: DreamPlan, files: DreamFiles, resume: bool) -> bool:
        """Run the plan of a dream, and tell of it."""
        return show_dream(plan, files, self.console, resume)
