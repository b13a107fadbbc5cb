"""How long a run will take on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from remix.data import MissingData, TaskStream
from remix.experiments.config import RunConfig
from remix.experiments.run_network import create_network
from remix.experiments.run_parts import load_tasks
from remix.experiments.run_plan import plan_run
from remix.learning.devices import as_device

__all__ = ["RunEstimate", "seconds_per_image"]


class RunEstimate:
    """Minutes of a run: those of finished ones of the same kind, else what its images through the network take here."""

    def __init__(self, data: str | None) -> None:
        self.data = data
        self.seconds: dict[str, float] = {}  # per image, by network
        self.streams: dict[str, TaskStream | None] = {}

    def minutes(self, config: RunConfig, finished: Sequence[Mapping[str, Any]]) -> float:
        """Of a run, given the summaries of those that differ from it in the seed only."""
        done = [float(summary["processor_minutes"]) for summary in finished]
        if done:
            return sum(done) / len(done)
        key = repr((config.network, config.data.name))
        if key not in self.seconds:
            self.seconds[key] = seconds_per_image(config)
        return plan_run(config, self._stream(config)).work * self.seconds[key] / 60

    def _stream(self, config: RunConfig) -> TaskStream | None:
        key = repr(config.data)
        if key not in self.streams:
            try:
                self.streams[key] = load_tasks(config.data, self.data)
            except MissingData:
                self.streams[key] = None
        return self.streams[key]


def seconds_per_image(config: RunConfig, steps: int = 3) -> float:
    """Forward and backward, the best of some batches on one thread, since runs side by side have one each."""
    device = as_device(config.accelerator)
    backbone: Any = create_network(config)
    backbone = backbone.to(device).train()
    shape = (config.batch_size, *backbone.input_shape)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return min(_step(backbone, images) for _ in range(steps + 1)) / config.batch_size
    finally:
        torch.set_num_threads(threads)


def _step(backbone: Any, images: Tensor) -> float:
    clock = time.process_time if images.device.type == "cpu" else time.perf_counter  # other programs do not count
    began = clock()
    loss = backbone.pooled(images).sum()
    loss.backward()
    loss.item()  # waits for the device
    return clock() - began
