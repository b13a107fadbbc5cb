"""What `remix run` says before it begins: what was chosen for a folder, the plan, remarks on the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from remix.data import TaskStream
    from remix.experiments.config import RunConfig

__all__ = ["note_on_data", "show_choices", "show_plan"]


def show_choices(name: str, config: RunConfig, console: Console) -> None:
    """For a folder of images, what there is and what was chosen for it; for a preset that is also a folder, a note."""
    import os
    from pathlib import Path

    from remix.data.task_stream import task_sizes
    from remix.experiments.config import list_presets
    from remix.experiments.own_data import folder_data, is_folder
    from remix.support.display import say
    from remix.support.text import counted

    if name in list_presets():
        if os.path.isdir(name):
            say(console, f"note: {name} is the preset of that name; for the folder {name} here, type ./{name}")
        return
    if not is_folder(name):
        return
    found, data, network = folder_data(name), config.data, config.network
    tested = "a fifth of every class is held out to test on" if found.test is None else f"{found.test:,} to test on"
    about = f"{Path(found.name).name}: {counted(len(found.classes), 'class')}, {found.train:,} images"
    say(console, f"{about}; {tested}." if found.test is None else f"{about} to learn from and {tested}.")
    sizes = task_sizes(data.classes or len(found.classes), data.tasks, data.first)
    later = f"{counted(len(sizes), 'task')} of {counted(sizes[-1], 'class')}"
    larger = f", {sizes[0]} in the first" if sizes[0] != sizes[-1] else ""
    order = (
        "alphabetical order (--set data.order=seed:1 shuffles)" if data.order == "natural" else f"order {data.order}"
    )
    say(console, f"They arrive in {later}{larger}, in {order}.")
    size, channels = data.options.get("size", found.size), data.options.get("channels", found.channels)
    kind = "grey" if channels == 1 else "colour"
    say(console, f"Images are brought to {size} x {size} pixels, {kind}; the shorter side of most is {found.side}.")
    width = f" of width {network.options['width']}" if "width" in network.options else ""
    began = "untrained" if network.weights is None else f"with {network.weights}"
    say(console, f"The network is {network.backbone}{width} and begins {began}; batches of {config.batch_size}.")
    say(console, "All of that can be changed: --save-preset mine.yaml writes it, remix run mine.yaml takes it.")


def note_on_data(config: RunConfig, stream: TaskStream, console: Console) -> None:
    """Say if a data set has other numbers of images than the official one: a file may be cut."""
    from remix.data.registry import list_datasets
    from remix.support.display import say

    name = config.data.name
    entry = next((entry for entry in list_datasets() if entry.name == name), None)
    official = None if entry is None else entry.counts
    found = len(stream.splits.train), len(stream.splits.test)
    here = stream.splits.here
    if entry is not None and entry.classes_here and len(here) < len(stream.splits.classes):
        say(console, f"note: a part of {name} is here, {len(here)} of {len(stream.splits.classes)} classes")
    elif (
        official is not None
        and found != official
        and not (config.data.validation or config.data.images or config.data.test_images)
    ):
        say(
            console,
            f"note: {name} has {found[0]:,} training and {found[1]:,} test images here, officially {official[0]:,} and "
            f"{official[1]:,}; remix data prepare {name} checks it",
        )


def show_plan(config: RunConfig, root: str | None, console: Console) -> None:
    """What would be done, and how long it would take; raises ValueError if it cannot be."""
    from remix.cli.output import fitted_table
    from remix.data import MissingData
    from remix.experiments.estimate import HOW_ESTIMATED, Estimate
    from remix.experiments.plan import check_run, load_tasks, plan_run
    from remix.learning.team import as_device
    from remix.support.display import duration, say

    reason = ""
    try:
        stream = load_tasks(config.data, root)
    except MissingData as error:
        stream, reason = None, str(error)
    check_run(config, stream)
    if stream is not None:
        note_on_data(config, stream, console)
    plan = plan_run(config, stream)
    data, network = config.data, config.network
    options = "".join(f", {key}={value}" for key, value in network.options.items())
    part = f", tested on {data.tested_on}" if data.validation else ""
    setting = getattr(config.settings, "setting", None)
    about = [
        ("data", f"{data.name}, {len(plan.tasks)} tasks, order {data.order}{part}"),
        ("network", f"{network.backbone}{options}, batches of {config.batch_size}"),
        ("method", f"{config.method}{f' (setting {setting})' if setting else ''}, seed {config.seed}"),
        ("device", f"{config.accelerator}, {config.devices} process(es), precision {config.precision}"),
    ]
    look: dict[str, Any] = {"show_header": False, "box": None, "pad_edge": False}
    console.print(fitted_table(["", "about"], about, console.width, texts=("", "about"), **look))
    images = "images through the network"
    heads = ["task", "classes", "train", "test", "pseudo", "stages (epochs)", images]
    rows: list[list[str] | None] = []
    for number, task in enumerate(plan.tasks, start=1):
        stages = ", ".join(f"{stage.name} ({stage.epochs})" for stage in task.stages)
        cells = [f"{task.train:,}", f"{task.test:,}", f"{task.pseudo:,}" if task.pseudo else "", stages]
        rows.append([str(number), _short(task.classes), *cells, f"{task.work:,}"])
    rows += [None, ["all", *[""] * (len(heads) - 2), f"{plan.work:,}"]]
    console.print(fitted_table(heads, rows, console.width, texts=("classes", "stages (epochs)"), drop=["classes"]))
    if not plan.known:
        say(console, f"this is planned with the official numbers of {data.name}: {reason}", style="yellow")
    try:
        as_device(config.accelerator)
    except ValueError:
        say(console, f"there is no {config.accelerator} here, so no time can be estimated")
        return
    minutes = Estimate(root).minutes(config, stream)
    say(console, f"about {duration(60 * minutes)} of one core here ({HOW_ESTIMATED})")


def _short(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)})" if len(names) > most else "")
