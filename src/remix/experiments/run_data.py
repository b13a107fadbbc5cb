"""The data of a run."""

from __future__ import annotations

from remix.data import TaskStream, load
from remix.data.registry import list_datasets
from remix.experiments.run_config import DataConfig, RunConfig
from remix.support.settings import SettingError
from remix.support.text import shown

__all__ = ["load_tasks", "note_on_data"]


def load_tasks(data: DataConfig, root: str | None) -> TaskStream:
    """The tasks that a configuration of data describes. Raises DataError, SettingError."""
    try:
        splits = load(data.name, root, **data.options)
    except TypeError as error:
        if not data.options:
            raise
        raise SettingError(f"data.options holds a value of the wrong kind: {shown(data.options)}") from error
    stream = TaskStream(splits, data.tasks, data.order, data.first, data.classes)
    return stream.with_validation(data.validation, data.validation_seed) if data.validation else stream


def note_on_data(config: RunConfig, stream: TaskStream) -> str | None:
    """A sentence if a data set has other numbers of images than the official one: a file may be cut."""
    official = {entry.name: entry.counts for entry in list_datasets()}.get(config.data.name)
    found = len(stream.splits.train), len(stream.splits.test)
    if official is None or config.data.validation or found == official:
        return None
    return (
        f"note: {config.data.name} has {found[0]:,} training and {found[1]:,} test images here, officially "
        f"{official[0]:,} and {official[1]:,}; remix data prepare {config.data.name} checks it"
    )
