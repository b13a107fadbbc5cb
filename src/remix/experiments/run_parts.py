"""What a run is made of besides its network: its tasks; its device, precision and processes."""

from __future__ import annotations

import os

import torch

from remix.data import TaskStream, load
from remix.experiments.config import DataConfig, RunConfig
from remix.learning.team import Team
from remix.support.settings import SettingError
from remix.support.text import shown

__all__ = ["create_team", "load_tasks"]


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


def create_team(config: RunConfig) -> Team:
    """The team that a configuration asks for. With several processes the command is started once more for each other.

    Raises:
        SettingError: for a device that is not here, or too many of them.

    """
    plain = config.devices == 1 and config.precision == "32"
    if plain and (config.accelerator == "cpu" or (config.accelerator == "auto" and not _accelerated())):
        return Team()
    most = max(16, os.cpu_count() or 1)
    if config.accelerator == "cpu" and config.devices > most:
        raise SettingError(f"devices: {config.devices} processes are more than this machine can bear, at most {most}")
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    strategy = "ddp" if config.devices > 1 else "auto"
    try:
        fabric = Fabric(
            accelerator=config.accelerator, devices=config.devices, precision=config.precision, strategy=strategy
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingError(f"{config.devices} x {config.accelerator!r} cannot be used here: {reason}") from error
    if fabric.device.type == "cuda":
        torch.backends.cudnn.deterministic = True  # going on after an interruption is to give the same bits
    fabric.launch()
    return Team(fabric)


def _accelerated() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()
