"""How long a run will take on this machine, from a few steps of its network."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from remix.data import MissingData, TaskStream
from remix.experiments.config import RunConfig
from remix.experiments.plan import create_network, load_tasks, plan_run
from remix.learning.team import as_device
from remix.networks import Backbone

__all__ = ["HOW_ESTIMATED", "Estimate", "seconds_per_image"]

HOW_ESTIMATED = "from a few steps of the network; methods with a generator take longer"

_TIMED = 64  # images at a time: more take as long each


class Estimate:
    """Minutes of runs on one core, or on the GPU: what their images take through the network, forward and backward.

    Every network is timed once, all data are read once.

    Args:
        data: the folder of the data sets.

    """

    def __init__(self, data: str | None) -> None:
        self.data = data
        self._seconds: dict[str, float] = {}  # per image, by network
        self._streams: dict[str, TaskStream | None] = {}

    def minutes(self, config: RunConfig, stream: TaskStream | None = None) -> float:
        """Of a run; ``stream`` if its tasks are read already. Raises ValueError for a device that is not here."""
        key = repr((config.network, config.data.name))
        if key not in self._seconds:
            self._seconds[key] = seconds_per_image(config)
        return plan_run(config, stream or self._stream(config)).work * self._seconds[key] / 60

    def _stream(self, config: RunConfig) -> TaskStream | None:
        """The tasks of a run, or None where its data are not here."""
        key = repr(config.data)
        if key not in self._streams:
            try:
                self._streams[key] = load_tasks(config.data, self.data)
            except MissingData:
                self._streams[key] = None
        return self._streams[key]


def seconds_per_image(config: RunConfig, steps: int = 3) -> float:
    """Forward and backward, the best of some batches on one thread, since runs side by side have one each."""
    device = as_device(config.accelerator)
    backbone = create_network(config)
    backbone = backbone.to(device).train()
    shape = (min(_TIMED, config.batch_size), *backbone.input_shape)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return min(_step(backbone, images) for _ in range(steps + 1)) / len(images)
    finally:
        torch.set_num_threads(threads)


def _step(backbone: Backbone, images: Tensor) -> float:
    clock = time.process_time if images.device.type == "cpu" else time.perf_counter  # other programs do not count
    began = clock()
    loss = backbone.pooled(images).sum()
    loss.backward()
    loss.item()  # waits for the device
    return clock() - began
